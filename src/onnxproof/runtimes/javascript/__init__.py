"""Runtimes in JavaScript: in Node and in a browser."""
