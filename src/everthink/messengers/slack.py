"""An agent in Slack.

from everthink.messengers.slack import slack_messenger
"""

from ..platforms.slack import Slack, slack_messenger

__all__ = ["Slack", "slack_messenger"]
