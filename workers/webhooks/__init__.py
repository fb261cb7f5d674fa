"""Telling others how a document ended: signed calls to allow-listed addresses, retried until one is taken.

The calls follow the Standard Webhooks specification, so that receivers can check them with its libraries. At least
once: a call whose answer got lost is made again, under the same `webhook-id`.
"""

from workers.webhooks.address import WebhookRefused, check_url
from workers.webhooks.delivery import Webhooks
from workers.webhooks.settings import WebhookSettings

__all__ = ["WebhookRefused", "WebhookSettings", "Webhooks", "check_url"]
