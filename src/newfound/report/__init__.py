"""A discovery as one HTML file: plain values in, text out."""
