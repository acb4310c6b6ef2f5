"""Bridges to other libraries. Each is imported only by who asks for it."""
