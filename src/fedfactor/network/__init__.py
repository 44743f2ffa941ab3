"""The protocol between coordinator and parties: messages, exchange, storage, transports."""
