"""How a rule changes one request: the order of its set of tools is asked for where it is the one that came first."""

from gateway.fixes.fixing import tool_names
from gateway.fixes.orders import ToolOrders
from gateway.fixes.rules import Rule
from gateway.fixes.types import Fix, How, ToolsOrder
from gateway.types import InferenceRequest


async def order_for(orders: ToolOrders, rule: Rule, request: InferenceRequest) -> How:
    """What the rule does to this request. Where no order is known, it leaves the tools as they are."""
    how = rule.how(request.route)
    if rule.tools_order is ToolsOrder.NAME or Fix.TOOLS not in rule.fixes or not request.prompt.tools:
        return how
    names = tool_names(request.body, how)
    order = None if names is None else await orders.order_of(f"{request.tenant.share_group}\0{request.model}", names)
    return rule.how(request.route, order or ())
