"""Rules about the shape of the code, read off its syntax trees."""
