"""Endpoints in Kubernetes: EndpointSlices, listed and watched at the API server over plain HTTPS."""

from backends.discovery.kubernetes.api import ApiAccess, ApiFailed, SliceApi
from backends.discovery.kubernetes.slices import Reaching
from backends.discovery.kubernetes.source import KubernetesSlices

__all__ = ["ApiAccess", "ApiFailed", "KubernetesSlices", "Reaching", "SliceApi"]
