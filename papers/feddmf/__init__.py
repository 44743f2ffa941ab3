"""Deep factorization without matching users: own and foreign items, shares of users and items, more clients, leaks."""
