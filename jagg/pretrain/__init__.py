"""The captioned image generator and the training of the embedded small models."""
