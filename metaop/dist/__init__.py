"""One logical tensor over many ranks: how values lie, what may run how, what has to be sent."""

from metaop.dist.sbp import Broadcast as Broadcast
from metaop.dist.sbp import Partial as Partial
from metaop.dist.sbp import Split as Split
from metaop.dist.trace import explain as explain
from metaop.dist.trace import signatures as signatures
