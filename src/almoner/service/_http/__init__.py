"""HTTP: routes, pages, login, and what a request must keep to."""
