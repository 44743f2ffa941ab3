"""The mailbox behind which parties are reached by long polling."""
