"""Days, and the weeks, months, quarters and years that they are in."""

from datetime import date, timedelta


def start_of(every: str, day: date) -> date:
    """The first day of the period that a day is in: its "day", "week" (from Monday), "month", "quarter" or "year"."""
    match every:
        case "day":
            return day
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=day.month - (day.month - 1) % 3, day=1)
        case _:
            return day.replace(month=1, day=1)
