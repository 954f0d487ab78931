"""Which files go with the job and come back: `should_transfer_files` and the lists of files."""

from __future__ import annotations

import hashlib
import re

from pool.jobs.description.diagnostics import nearest
from pool.jobs.description.expressions import size_of
from pool.jobs.description.job import JobDraft
from pool.jobs.description.sections.program import check_readable, checked, is_url, of_each_node
from pool.jobs.urls import is_fetched, scheme_of

_WHETHER = dict.fromkeys(("yes", "true", "always"), "YES") | dict.fromkeys(("no", "false", "never"), "NO")
_WHETHER |= dict.fromkeys(("if_needed", "auto"), "IF_NEEDED")
_WHEN = dict.fromkeys(("on_exit", "onexit"), "ON_EXIT") | dict.fromkeys(("on_success", "onsuccess"), "ON_SUCCESS")
_WHEN |= dict.fromkeys(("on_exit_or_evict", "always"), "ON_EXIT_OR_EVICT") | dict.fromkeys(("none", "null"), "NEVER")
TRANSFERRING = (5, 8, 10, 11, 13)
#: The words that may follow the colon of a directory in `remote_io_trees`.
_TREE_MODES = ("", "ro", "rw", "static")
_NEVER_SENT = ("docker://", "oras://")
_REMOTE = dict.fromkeys(("on", "yes", "true"), "on") | dict.fromkeys(("off", "no", "false"), "off") | {"auto": "auto"}


def file_list(text: str) -> list[str]:
    """File names between commas, double quotes around the whole taken off."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1]
    return [name.strip() for name in text.split(",") if name.strip()]


def remote_io(job: JobDraft) -> None:
    """`remote_io`: on, off, or auto: whether the job finds its owner's files under their own names wherever it runs."""
    text = job.param("remote_io", "RemoteIO") or "off"
    wish = _REMOTE.get(text.strip().lower())
    if wish is None:
        raise job.refuse("remote_io", f"expected on, off or auto for 'remote_io', not {text!r}", other="RemoteIO")
    trees = job.param("remote_io_trees", "RemoteIOTrees")
    if wish == "off":
        if trees:
            raise job.refuse(
                "remote_io_trees",
                "remote_io_trees is given, but without remote_io the job does not work on files here",
                "write remote_io = on as well, or leave it out",
                other="RemoteIOTrees",
            )
        return
    nature = job.nature
    if nature.universe != 5 or nature.docker or nature.container:
        raise job.refuse(
            "remote_io", f"remote_io = {text} is for jobs of the vanilla universe without an image", "leave it out"
        )
    job.set("RemoteIO", True if wish == "on" else "auto")
    if trees:
        job.set("RemoteIOTrees", ",".join(_tree(job, word) for word in file_list(trees)))


def _tree(job: JobDraft, word: str) -> str:
    """One directory of `remote_io_trees`, absolute; `:ro` or `:static` behind it is for reading only."""
    name, _, how = word.partition(":")
    if not name or how not in _TREE_MODES:
        raise job.refuse(
            "remote_io_trees",
            f"'remote_io_trees' names {word!r}, which is no directory",
            "write DIRECTORY, DIRECTORY:ro to read only, or DIRECTORY:static if it seldom changes, too",
            other="RemoteIOTrees",
        )
    path = job.full_path(name)
    if checked(job, name) and job.files.kind(path) != "directory":
        raise job.refuse_path(
            "remote_io_trees",
            path,
            f"'remote_io_trees' names {path}, which is no directory",
            "make it first",
            other="RemoteIOTrees",
        )
    return f"{path}:{how}" if how in ("ro", "static") else path


def transfer(job: JobDraft) -> None:
    """All commands of file transfer, and the contradictions among them."""
    inputs = file_list(job.param("transfer_input_files", "TransferInputFiles") or "")
    for name in inputs:
        if checked(job, name):
            for one in of_each_node(job, name):
                check_readable(job, "transfer_input_files", job.full_path(one))
    given = bool(inputs)
    if job.nature.container:
        given = _image(job, inputs) or given
    if common := job.param("transfer_common_input", "CommonInputFiles"):
        job.set("CommonInputFiles", ",".join(file_list(common)))
    _docker_credentials(job)
    text = job.param("transfer_output_files", "TransferOutputFiles")
    outputs = None if text is None else file_list(text)
    whether, when = _agree(job, given, outputs is not None)
    job.set("ShouldTransferFiles", whether)
    if whether != "NO":
        job.set("WhenToTransferOutput", when)
    if whether != "YES" and job.lookup("FileSystemDomain") is None:
        job.set("FileSystemDomain", job.facts.filesystem_domain)
    if whether != "NO":
        given = _tools(job, inputs) or given
        given = _java(job, inputs) or given
        if given:
            job.set("TransferInput", ",".join(inputs))
        if outputs is not None:
            job.set("TransferOutput", ",".join(outputs))
    elif job.nature.universe not in (9, 10, 13) and job.boolean("transfer_executable", "TransferExecutable"):
        raise job.refuse("transfer_executable", "the executable cannot be sent without file transfer", _CONTRADICTION)
    public = file_list(job.param("public_input_files", "PublicInputFiles") or "")
    if public and whether != "NO":
        job.set("PublicInputFiles", ",".join(public))
    _sizes(job)
    if remaps := job.param("transfer_output_remaps", "TransferOutputRemaps"):
        remaps = remaps.strip()
        bare = remaps[1:-1] if len(remaps) > 1 and remaps[0] == remaps[-1] == '"' else remaps
        if bare:
            job.set("TransferOutputRemaps", bare)


#: Schemes of URLs that every machine fetches; those of object stores are signed on the submit side.
_EVERYWHERE = frozenset({"http", "https", "s3", "gs"})
_CONTRADICTION = "write should_transfer_files = YES, or leave the other command out"


def _sizes(job: JobDraft) -> None:
    """`image_size` and `disk_usage`: what the job is known to need before it ever ran, in KiB."""
    for command, attribute in (("image_size", "ImageSize"), ("disk_usage", "DiskUsage")):
        text = job.param(command, attribute)
        if text is None:
            continue
        size = size_of(text, 1024)
        if size is None or size.amount < 1:
            raise job.refuse(command, f"expected a positive size for '{command}', not {text!r}", other=attribute)
        job.set(attribute, size.amount)


def _image(job: JobDraft, inputs: list[str]) -> bool:
    """Whether the container's image is a file that is sent along."""
    image = job.param("container_image", "ContainerImage")
    if job.lookup("TransferContainer") is False or (image and image.startswith(job.facts.shared_images)):
        job.set("ContainerImageSource", "local")
        return False
    if not image:
        return False
    for prefix in _NEVER_SENT:
        if image.startswith(prefix):
            job.set("ContainerImageSource", prefix[:-3])
            return False
    if not job.facts.as_reference and job.files.kind(job.full_path(f"{image.rstrip('/')}/oci-layout")) == "file":
        job.set("ContainerImageIsLayout", True)
    if job.is_true("ContainerIsCommon"):
        _share_image(job, image)
    else:
        inputs.append(image)
    bare = image.removesuffix("/")
    job.set("ContainerImage", bare[bare.rfind("/") + 1 :])
    job.set("ContainerImageFullPath", image)
    job.set("ContainerImageSource", bare.partition(":")[0] if ":" in bare else "cedar")
    return True


def _share_image(job: JobDraft, image: str) -> None:
    """Name an image so that machines keep it for the next job."""
    place = image if is_url(image) else job.full_path(image)
    name = f"container_{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    job.set(f"_x_catalog_{name}", image)
    known = [entry for entry in job.text_of("CommonInputCatalogs").split(", ") if entry]
    if name not in known:
        job.set("CommonInputCatalogs", ", ".join([*known, name]))


def _docker_credentials(job: JobDraft) -> None:
    """`docker_send_credentials`: the file of logins that docker or podman keeps for the submitter."""
    if not job.is_true("DockerSendCredentials"):
        return
    home, run = job.environ.get("HOME", ""), job.environ.get("XDG_RUNTIME_DIR", "")
    path = f"{home}/.docker/config.json"
    if not job.facts.as_reference:
        named = job.environ.get("REGISTRY_AUTH_FILE", "")
        files = [named, *([f"{run}/containers/auth.json"] if run else []), f"{home}/.config/containers/auth.json", path]
        path = next((file for file in files if file and job.files.kind(file) == "file"), path)
        job.set("RegistryLogins", path)
    if job.files.kind(path) != "file":
        message = f"there are no docker credentials in {path}"
        raise job.refuse_path("docker_send_credentials", path, message, "run docker login")


def _begins_elsewhere(job: JobDraft, whether: str) -> bool:
    """Whether the program begins in a directory of its machine that is not the job's initial directory."""
    folder = job.param("remote_initialdir", "RemoteIwd")
    if not folder or job.facts.as_reference:
        return False
    if not folder.startswith("/"):
        raise job.refuse("remote_initialdir", f"expected an absolute path for 'remote_initialdir', not {folder!r}")
    if whether == "YES" or job.lookup("RemoteIO") is True:
        raise job.refuse(
            "remote_initialdir",
            "a job begins in a directory of its machine only where it has that machine's files",
            "leave should_transfer_files and remote_io out, or this",
        )
    if job.lookup("Processes") is not None:
        raise job.refuse("remote_initialdir", "each process of a pipe job has its own", "write NAME.initialdir")
    return True


def _agree(job: JobDraft, inputs: bool, outputs: bool) -> tuple[str, str]:
    text = job.param("ShouldTransferFiles", "should_transfer_files") or job.text_of("ShouldTransferFiles")
    by_default = not text
    always = job.lookup("RemoteIO") is True
    if always and (inputs or outputs):
        name = "transfer_input_files" if inputs else "transfer_output_files"
        raise job.refuse(
            name,
            f"'{name}' is given, but with remote_io = on the job opens its files on the submit machine",
            "leave it out, or write remote_io = auto",
        )
    whether = _WHETHER.get(text.lower(), "") if text else "NO" if always else "IF_NEEDED"
    if always and whether == "YES":
        raise job.refuse("should_transfer_files", "files are not copied with remote_io = on", "leave one of them out")
    if always:
        whether = "NO"
    if whether and _begins_elsewhere(job, whether):
        whether = "NO"
    if not whether:
        raise job.refuse(
            "should_transfer_files",
            f"expected YES, NO or IF_NEEDED for 'should_transfer_files', not {text!r}",
            other="ShouldTransferFiles",
        )
    if whether == "NO" and (inputs or outputs):
        name = "transfer_input_files" if inputs else "transfer_output_files"
        raise job.refuse(name, f"'{name}' is given, but should_transfer_files = {text}", _CONTRADICTION)
    text = job.param("WhenToTransferOutput", "when_to_transfer_output") or job.text_of("WhenToTransferOutput")
    when = _WHEN.get(text.lower(), "") if text else "NEVER" if whether == "NO" else "ON_EXIT"
    if not when:
        meant = nearest(text, _WHEN)
        raise job.refuse(
            "when_to_transfer_output",
            f"expected ON_EXIT, ON_EXIT_OR_EVICT or ON_SUCCESS for 'when_to_transfer_output', not {text!r}",
            f"did you mean {meant.upper()}?" if meant else "",
            other="WhenToTransferOutput",
        )
    if (whether == "NO") != (when == "NEVER"):
        raise job.refuse(
            "when_to_transfer_output",
            f"when_to_transfer_output = {when} contradicts should_transfer_files = {whether}",
            _CONTRADICTION,
            other="WhenToTransferOutput",
        )
    if when == "ON_EXIT_OR_EVICT" and whether == "IF_NEEDED":
        if not by_default:
            raise job.refuse(
                "when_to_transfer_output",
                "ON_EXIT_OR_EVICT needs files that are always sent",
                "write should_transfer_files = YES",
                other="WhenToTransferOutput",
            )
        whether = "YES"
    return whether, when


def _tools(job: JobDraft, inputs: list[str]) -> bool:
    found = [name for name in (job.text_of("ToolDaemonCmd"), job.text_of("ToolDaemonInput")) if name]
    if not job.text_of("ToolDaemonCmd"):
        return False
    inputs += [name for name in found if name not in inputs]
    return False  # they are sent, but only a list that the user began is written down


def _java(job: JobDraft, inputs: list[str]) -> bool:
    if job.nature.universe != 10:
        return False
    program = job.text_of("Cmd")
    if program and program != "java" and program not in inputs:
        inputs.append(program)
    inputs += file_list(job.text_of("JarFiles"))
    job.set("Cmd", "java")
    job.set("TransferExecutable", False)
    return not job.facts.as_reference


def methods(job: JobDraft) -> None:
    """The schemes of the URLs that the machine must be able to fetch or store, in order."""
    if job.nature.universe not in TRANSFERRING or job.text_of("ShouldTransferFiles") == "NO":
        return
    inputs, remaps = job.text_of("TransferInput"), job.text_of("TransferOutputRemaps")
    urls = [url for url in inputs.split(",") if "://" in url] if "://" in inputs else []
    if not job.facts.as_reference:
        urls = _fetched(job, urls, remaps)
        remaps = ""
    urls += [remap.partition("=")[2] for remap in remaps.split(";")] if "://" in remaps else []
    if destination := job.text_of("OutputDestination"):
        urls.append(destination)
    if not urls:
        return
    provided = re.findall(r"([^;=]+)=", job.text_of("TransferPlugins"))
    known = {name.strip().lower() for names in provided for name in re.split(r"[,\s]+", names)}
    found: dict[str, str] = {}
    for url in urls:
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://.", url.strip())
        if scheme:
            name = re.split(r"[+.-]", scheme[1])[-1]
            if name.lower() not in known:
                found.setdefault(name.lower(), name)
    if not found:
        return
    job.set("WantTransferPluginMethods", ",".join(found[key] for key in sorted(found)))
    if {"s3", "gs"} & found.keys():
        _check_keys(job)


def _fetched(job: JobDraft, urls: list[str], remaps: str) -> list[str]:
    """The inputs that a machine has to fetch; what none can fetch or store is refused or spoken of."""
    if "://" in remaps:
        raise job.refuse("transfer_output_remaps", "outputs are sent back, and not to a URL", "send it in the job")
    found = [url for url in urls if is_fetched(url)]
    for scheme in sorted({scheme_of(url) for url in found} - _EVERYWHERE):
        job.warn(
            "transfer_input_files",
            f"{scheme}:// inputs need machines with a program that fetches them",
            "the administrator's setting TRANSFER_PLUGINS names such programs",
        )
    return found


def _check_keys(job: JobDraft) -> None:
    for what, attribute in (("access_key_id", "EC2AccessKeyId"), ("secret_access_key", "EC2SecretAccessKey")):
        if job.lookup(attribute) is None:
            raise job.refuse(
                "transfer_input_files",
                "files in an s3:// or gs:// store need keys",
                f"write s3_{what}_file = FILE",
            )
