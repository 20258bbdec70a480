"""The language of filters, expressions and keys: parsed and checked, never run as text."""
