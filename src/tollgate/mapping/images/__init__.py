"""Image jobs of a provider file, compiled: steps over HTTP, status words, prices, input schemas, their examples."""

from tollgate.mapping.images.compile import Surroundings, compile_images
from tollgate.mapping.images.examples import IMAGE_EXAMPLES, IMAGE_EXAMPLES_BRING, image_example
from tollgate.mapping.images.offer import ImageOffer, ImageOffers, Step

__all__ = [
    "IMAGE_EXAMPLES",
    "IMAGE_EXAMPLES_BRING",
    "ImageOffer",
    "ImageOffers",
    "Step",
    "Surroundings",
    "compile_images",
    "image_example",
]
