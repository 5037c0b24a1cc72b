"""The indexing service: reads documents and stores their texts, chunk trees and vectors."""
