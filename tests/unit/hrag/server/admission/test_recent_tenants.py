"""RecentTenants determines whether only one tenant has called recently."""

from hrag.server.admission.recent_tenants import RecentTenants


def test_a_tenant_is_alone_if_no_other_tenant_called_recently() -> None:
    now = [0.0]
    recent = RecentTenants(10, lambda: now[0])

    def is_alone(caller: str) -> bool:
        recent.note(caller)
        return recent.is_alone

    assert is_alone("a")
    assert is_alone("a")
    assert not is_alone("b")
    now[0] = 9.9
    assert not is_alone("b")
    now[0] = 10
    assert recent.is_alone
    assert is_alone("b")
    assert not is_alone("a")
