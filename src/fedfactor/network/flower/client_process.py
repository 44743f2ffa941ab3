"""A client process that stays: takes messages from its own SuperNode and answers them with the code installed here.

Flower would start a fresh process for every message and run in it the app that came with the run. This one imports
nothing that travelled: whatever a server ships, only the installed library ever touches the rows.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedfactor.network.backoff import Backoff
from fedfactor.network.client import RemoteClient
from fedfactor.network.flower.apps import answer
from fedfactor.network.flower.objects import wait_for_pieces

logger = logging.getLogger("fedfactor")


class ClientProcess:
    """Carries messages between a SuperNode on this machine and a client.

    Parameters
    ----------
    remote : RemoteClient
        Who answers.
    address : str
        Address of the SuperNode's runtime API.
    secret : bytes
        What that SuperNode demands from whoever takes its work.
    poll : float
        Most seconds between two looks.
    """

    def __init__(self, remote: RemoteClient, address: str, secret: bytes, poll: float = 0.5) -> None:
        self._remote, self._address, self._wait = remote, address, Backoff(poll)
        wait_for_pieces()
        guard = SuperExecAuthHttpInterceptor(
            master_secret=secret, protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"})
        )
        self._client = self._connect(RuntimeVersionHttpInterceptor(component_name="SuperExec"), guard)

    def _connect(self, *interceptors: Any) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=True,  # this machine only
            root_certificates=None,
            interceptors=list(interceptors),
            retry_invoker=None,  # Flower's own would end this process when a task is no longer wanted
        )

    def serve(self, alive: Callable[[], bool]) -> bool:
        """Answer until ``alive`` says no; return False when an answer was lost: the SuperNode would wait for ever."""
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        while alive():
            try:
                task = self._client.AcquireTask(request)
            except httpx.HTTPError as error:
                logger.warning("The SuperNode does not answer: %s", error)
                time.sleep(1.0)
                continue
            if task.HasField("task") and task.token:
                if not self._one(task.token):
                    return False
                self._wait.hurry()
            else:
                time.sleep(self._wait.next())
        return True

    def _one(self, token: str) -> bool:
        version = RuntimeVersionHttpInterceptor(component_name="flwr-clientapp")
        client = self._connect(version, RuntimeTokenHttpInterceptor(token))
        heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        context, status, details = None, SubStatus.FAILED, "the message could not be answered"
        try:
            heart.start()
            message, context, _, _ = pull_task_input(client)
            push_message(client, answer(self._remote, message), context)
            status, details = SubStatus.COMPLETED, ""
        except Exception:
            logger.exception("A message could not be answered.")
        finally:
            push_task_output(client, context, status, details)
            with contextlib.suppress(RuntimeError):  # it ends by itself when the node has given the task up
                heart.stop()
            client.close()
        return status == SubStatus.COMPLETED
