"""Names that clients use for models: aliases, weighted arms, canaries, and who answers where they cannot."""

from gateway.model_routes.advice import unserved
from gateway.model_routes.choice import arm_at, arm_of, key_of
from gateway.model_routes.fallbacks import Fallbacks, Serves
from gateway.model_routes.guarding import Guard
from gateway.model_routes.pages import ROUTES_PATH, route_router, routes_page
from gateway.model_routes.routes import ModelRoutes, RouteParts, UnknownArm
from gateway.model_routes.setup import model_routes_of, routes_from, works_of
from gateway.model_routes.shared_stops import SharedStops
from gateway.model_routes.types import Arm, GuardRule, ModelRoute, Sticky

__all__ = [
    "ROUTES_PATH",
    "Arm",
    "Fallbacks",
    "Guard",
    "GuardRule",
    "ModelRoute",
    "ModelRoutes",
    "RouteParts",
    "Serves",
    "SharedStops",
    "Sticky",
    "UnknownArm",
    "arm_at",
    "arm_of",
    "key_of",
    "model_routes_of",
    "route_router",
    "routes_from",
    "routes_page",
    "unserved",
    "works_of",
]
