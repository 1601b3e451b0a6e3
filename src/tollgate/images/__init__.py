"""Image generations: jobs at providers, made, followed, charged once, and shown in the envelope of SPEC."""

from tollgate.images.catalog import describe, image_listing, image_models, image_routes
from tollgate.images.order import Order
from tollgate.images.runner import Jobs
from tollgate.images.service import (
    create_generation,
    get_generation,
    jobs_of,
    list_generations,
    run_refresher,
    show,
)
from tollgate.images.state import is_job_id

__all__ = [
    "Jobs",
    "Order",
    "create_generation",
    "describe",
    "get_generation",
    "image_listing",
    "image_models",
    "image_routes",
    "is_job_id",
    "jobs_of",
    "list_generations",
    "run_refresher",
    "show",
]
