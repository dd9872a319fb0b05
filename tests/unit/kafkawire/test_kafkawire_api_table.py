"""The table of APIs, which is collected from the modules of their messages."""

import pkgutil

from penstock.kafkawire import api
from penstock.kafkawire.api import API_TABLE


def test_each_module_gives_one_api_and_no_key_hides_another() -> None:
    modules = [each.name for each in pkgutil.iter_modules(api.__path__)]
    assert len(API_TABLE) == len(modules)


def test_the_table_is_in_the_order_of_the_keys_because_api_versions_answers_in_this_order() -> None:
    assert list(API_TABLE) == sorted(API_TABLE)
