"""The retrieval service: queries in, passages out."""
