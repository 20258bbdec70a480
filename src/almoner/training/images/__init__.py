"""Private models of images: features, classifiers, and the folders that keep them."""
