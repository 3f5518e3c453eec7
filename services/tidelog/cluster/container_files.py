"""The data of a container, through the engine alone: no right on the machine's own files is needed.

It is read as an archive, which works on a stopped container too. What changes files runs in a container of its own that
shares the volumes, so that they are changed in place.
"""

import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

from docker.errors import DockerException, NotFound

from tidelog.cluster.api import ClusterError


class ContainerFiles:
    """Implements `DataFiles`."""

    def __init__(self, engine: Any, container: Any, directory: str, image: str) -> None:
        """`directory` is that of the data inside; `image` has this package."""
        self._engine = engine
        self._container = container
        self._directory = directory
        self._image = image

    def sizes(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self._ask("sizes")
        return found

    def read(self, folder: str) -> Mapping[str, bytes]:
        path = f"{self._directory}/{folder}"
        try:
            chunks, _ = self._container.get_archive(path)
        except NotFound:
            raise FileNotFoundError(f"{self._container.name} has no {path}") from None
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            members = {member.name.partition("/")[2]: member for member in archive.getmembers() if member.isfile()}
            return {name: _content(archive, member) for name, member in sorted(members.items()) if "/" not in name}

    def truncate(self, path: str, size: int) -> None:
        self._ask("truncate", path, size)

    def flip(self, path: str, offset: int) -> None:
        self._ask("flip", path, offset)

    def remove(self, path: str) -> None:
        self._ask("remove", path)

    def wipe(self) -> None:
        self._ask("wipe")

    def check_own_disk(self) -> None:
        """See `LocalFiles.check_own_disk`."""
        self._ask("check_own_disk")

    def fill(self) -> int:
        """See `LocalFiles.fill`."""
        return int(self._ask("fill"))

    def unfill(self) -> None:
        self._ask("unfill")

    def _ask(self, *request: object) -> Any:
        command = ["python", "-m", "tidelog.cluster.files", self._directory, json.dumps(request)]
        try:
            running = self._engine.containers.run(
                self._image,
                command,
                volumes_from=[self._container.id],
                network_mode="none",
                user="0",
                detach=True,
            )
            try:
                # Asked for when it has ended: what the engine streams of a container that is being removed may be cut off.
                code = running.wait()["StatusCode"]
                answer, said = running.logs(stderr=False), running.logs(stdout=False)
            finally:
                running.remove(force=True)
        except DockerException as error:
            raise ClusterError(f"{request[0]} of the files of {self._container.name}: {error}") from error
        if code:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            raise ClusterError(
                f"{request[0]} of the files of {self._container.name}: {''.join(last) or f'exit {code}'}"
            )
        return json.loads(answer)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None, "asked for regular files alone"
    return file.read()
