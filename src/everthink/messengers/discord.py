"""An agent in Discord.

from everthink.messengers.discord import discord_messenger, set_discord_commands
"""

from ..platforms.discord import Discord, discord_messenger, set_discord_commands

__all__ = ["Discord", "discord_messenger", "set_discord_commands"]
