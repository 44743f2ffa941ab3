"""The default transport: HTTP/1.1 long polling over mutual TLS 1.3."""
