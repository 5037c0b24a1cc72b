"""The indexing service: documents in, chunk trees and vectors stored."""
