"""What timers, the queue and declared tasks hand to their callbacks.

from everthink.timers import Job, Schedule, TaskContext
"""

from .facades import help_from
from .schedules.alarms import Schedule
from .schedules.jobs import Job
from .schedules.task import TaskContext

__all__ = ["Job", "Schedule", "TaskContext"]

help_from(__name__)
