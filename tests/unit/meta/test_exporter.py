"""The mntr exporter: numbers become gauges, and an unreachable server is data, not an end."""

from tidelog.exporter.mntr import MntrCollector, parse
from tidelog.ids import Address

SERVER = Address("127.0.0.1", 1)
TEXT = (
    "zk_version\t3.9.5-0, built on 2026\nzk_server_state\tleader\nzk_avg_latency\t0.25\nzk_znode_count\t7\n"
    "zk_avg_prep_process_time\t3\n"
    'zk_read_per_namespace{key="x"}\t1\nzk_max_file_descriptor_count\tNaNope\nnot a field\n'
)


def test_kept_numbers_are_fields_and_the_rest_is_left_out() -> None:
    answer = parse(SERVER, TEXT)
    assert (answer.up, answer.state, answer.fields) == (True, "leader", {"avg_latency": 0.25, "znode_count": 7.0})


def test_a_server_without_a_quorum_is_up_without_fields() -> None:
    answer = parse(SERVER, "This ZooKeeper instance is not currently serving requests\n")
    assert (answer.up, answer.state, answer.fields) == (True, "", {})


def test_an_unreachable_server_is_down_and_the_scrape_goes_on() -> None:
    families = {family.name: family for family in MntrCollector([SERVER], timeout_s=0.2).collect()}
    (sample,) = families["tidelog_zookeeper_up"].samples
    assert (sample.labels, sample.value) == ({"server": "127.0.0.1:1"}, 0.0)
