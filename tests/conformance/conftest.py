"""Fixtures of the conformance tests: those of the gateway's."""

from rig.gateways import gateway_boxes, gw, gw_ns, ignored  # noqa: F401

collect_ignore_glob = ignored
