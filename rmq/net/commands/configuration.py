"""Settings of a node, asked and changed while it runs [updateBrokerConfig, getNamesrvConfig]. Pure."""

from typing import NamedTuple

from rmq.codes import RequestCode
from rmq.net.commands.vocabulary import command


class ConfigText(NamedTuple):
    """`key=value` lines under RocketMQ's keys. `version`: RocketMQ's DataVersion as JSON."""

    text: str
    version: str = ""


class ConfigChanged(NamedTuple):
    """`about`: keys that were kept and have no effect, as a sentence; "" if there are none."""

    about: str = ""


@command(RequestCode.GET_BROKER_CONFIG, ConfigText)
class GetBrokerConfig(NamedTuple):
    """The settings in force at this node; no secrets."""


@command(RequestCode.UPDATE_BROKER_CONFIG, ConfigChanged)
class UpdateBrokerConfig(NamedTuple):
    """Changes settings of this node at once, and for its later starts; all that the text names, or none.

    INVALID_PARAMETER names a key that does not change while the node runs, or a wrong value; NO_PERMISSION: a path, an
    address or a secret.
    """

    text: str


@command(RequestCode.GET_NAMESRV_CONFIG, ConfigText)
class GetNameserverConfig(NamedTuple):
    """The settings in force at this nameserver; no secrets."""


@command(RequestCode.UPDATE_NAMESRV_CONFIG, ConfigChanged)
class UpdateNameserverConfig(NamedTuple):
    """As `UpdateBrokerConfig`, at a nameserver."""

    text: str


ConfigRequest = GetBrokerConfig | UpdateBrokerConfig | GetNameserverConfig | UpdateNameserverConfig
ConfigAnswer = ConfigText | ConfigChanged
