"""x"""


class DemoModel: ...
