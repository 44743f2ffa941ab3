"""Messages over Flower: a ServerApp that runs rounds, a ClientApp that answers, and the processes that carry them."""
