"""Image jobs of a provider file, compiled: steps over HTTP, status words, prices, input schemas, their examples."""

from tollgate.mapping.images.compile import Surroundings, compile_images
from tollgate.mapping.images.examples import is_image_example, run_examples
from tollgate.mapping.images.offer import ImageOffer, ImageOffers, Step

__all__ = ["ImageOffer", "ImageOffers", "Step", "Surroundings", "compile_images", "is_image_example", "run_examples"]
