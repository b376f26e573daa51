"""The worker's data: data sets, images, sampling order, user code."""
