from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

class Exit(Exception):
    def __init__(self, code: int = 0) -> None: ...

class Typer:
    def __init__(
        self,
        *,
        name: str | None = ...,
        help: str | None = ...,
        no_args_is_help: bool = ...,
        add_completion: bool = ...,
        rich_markup_mode: str | None = ...,
        pretty_exceptions_enable: bool = ...,
        context_settings: dict[str, Any] | None = ...,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def command(self, name: str | None = ..., *, hidden: bool = ..., help: str | None = ...) -> Callable[[F], F]: ...
    def callback(self) -> Callable[[F], F]: ...
    def add_typer(self, typer_instance: Typer, *, name: str | None = ...) -> None: ...

def Option(
    *param_decls: str,
    help: str | None = ...,
    show_default: bool | str = ...,
    min: float | None = ...,
    max: float | None = ...,
    metavar: str | None = ...,
    callback: Callable[..., Any] | None = ...,
    autocompletion: Callable[..., Any] | None = ...,
    is_eager: bool = ...,
    rich_help_panel: str | None = ...,
    hidden: bool = ...,
    hide_input: bool = ...,
    exists: bool = ...,
) -> Any: ...
def Argument(
    *,
    help: str | None = ...,
    show_default: bool | str = ...,
    metavar: str | None = ...,
    callback: Callable[..., Any] | None = ...,
    autocompletion: Callable[..., Any] | None = ...,
) -> Any: ...
def confirm(text: str, default: bool | None = ..., abort: bool = ..., err: bool = ...) -> bool: ...
def echo(message: object = ..., file: object = ..., nl: bool = ..., err: bool = ...) -> None: ...
