"""Image generations: jobs at providers, made, followed, charged once, and shown in the envelope of SPEC."""

from tollgate.images.catalog import descriptor, image_listing, image_models, image_routes
from tollgate.images.order import Order
from tollgate.images.runner import Jobs
from tollgate.images.service import (
    create_generation,
    generation_entry,
    get_generation,
    jobs_of,
    list_generations,
    run_refresher,
)
from tollgate.images.state import is_job_id

__all__ = [
    "Jobs",
    "Order",
    "create_generation",
    "descriptor",
    "generation_entry",
    "get_generation",
    "image_listing",
    "image_models",
    "image_routes",
    "is_job_id",
    "jobs_of",
    "list_generations",
    "run_refresher",
]
