"""What is measured of a record, once each; attacks are arithmetic on it."""
