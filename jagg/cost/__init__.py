"""Cost from the configuration alone: FLOPs, activations, memory and passes of a transformer and a trajectory."""
