"""Goroutines in gdb, of a live process and of a core file. gdb loads this with a program that uses windlass.

    info goroutines [-all] [TEXT]   lists them: those whose line contains TEXT; all of them, not the first 1000
    goroutine N bt [-full]          the stack of goroutine N, of the program's own functions; or all of it
    goroutine all bt [-full]        the stacks of all, equal ones once
    goroutine N                     selects it for bt, up, down, info locals, ..
    goroutine off                   goes back to the thread; so does a step or a continue

Nothing in the process is changed and nothing of it is called. The places of what is read lie in the section
.windlass.gdb of the program (`Registry` in src/g/slab.rs), so no type information is needed.
"""

import collections
import itertools
import re
import struct
import time

import gdb
import gdb.unwinder

MAGIC = b"windlass gdb 1\0\0"
# As `DEBUG_OFFSETS` of src/g/header.rs.
OFFSETS = """
    status coro coro_end out id details site stack_bytes header_bytes name linked link_out link_extra span
""".split()
IN_HEADER = OFFSETS[: OFFSETS.index("header_bytes")]
RUNNABLE, RUNNING, WAITING, CANCELLING, BLOCKED = 2, 3, 4, 5, 6
STATES = {1: "runnable", RUNNABLE: "runnable", RUNNING: "running", CANCELLING: "waiting", BLOCKED: "blocking"}
# As `Reason` of src/g/status.rs, in the words of `reason_text`.
REASONS = [
    "waiting", "park", "sleep", "IO wait", "join", "scope", "offload", "chan send", "chan receive", "select",
    "sync.Mutex.lock", "sync.RwLock", "sync.Condvar.wait", "sync.Semaphore.acquire", "sync.Barrier.wait",
    "sync.Once", "sync.WaitGroup.wait", "future", "sim.settle", "IO wait",
]
# corosensei's function at the root of each stack.
ROOT = "stack_init_trampoline"
ROOT_BYTES = 64
# As `CHUNK_BYTES` of src/g/slab.rs.
CHUNK_BYTES = 256 * 1024
MAX_LISTED = 1000
MAX_FRAMES = 10_000
MAX_SHOWN = 200
STEP_NS = 1 << 30
SECONDS_BITS = 22


def read(at, n):
    return gdb.selected_inferior().read_memory(at, n).tobytes()


def incomplete(why):
    """Says that the memory of goroutines cannot be read as a whole."""
    gdb.write(f"warning: {why}, so goroutines may be missing in the list\n", gdb.STDERR)


def words(at, n):
    return struct.unpack(f"<{n}Q", read(at, 8 * n))


def text(at, n):
    """Text of the program, without characters that a terminal would obey."""
    found = read(at, min(n, 4096)).decode(errors="replace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in found)


class Registry:
    """What a program says of its goroutines."""

    def __init__(self):
        places = set()
        for line in gdb.execute("info files", to_string=True).splitlines():
            found = re.match(r"\s*(0x[0-9a-f]+) - (0x[0-9a-f]+) is \.windlass\.gdb\b", line)
            if found:
                # A program may have windlass in several versions. Of a remote process, each section is listed twice.
                places.update(range(int(found[1], 16), int(found[2], 16), 8))
        self.places = sorted(places)
        if not self.places:
            raise gdb.GdbError("this program has no goroutines of windlass: its file has no section .windlass.gdb")

    def __iter__(self):
        """All goroutines that have not ended, of as much memory as can be read and is not damaged."""
        known = [place for place in self.places if self.magic(place) == MAGIC]
        if not known:
            raise gdb.GdbError("the program has another version of windlass than these commands")
        for place in known:
            newest, *offsets = struct.unpack(f"<Q{len(OFFSETS)}H", read(place + len(MAGIC), 8 + 2 * len(OFFSETS)))
            offsets = dict(zip(OFFSETS, offsets))
            if not all(offsets[field] + 8 <= offsets["header_bytes"] for field in IN_HEADER):
                raise gdb.GdbError("the program's data is damaged: the places of a goroutine's fields make no sense")
            for chunk, base, slot_bytes, n_cut in self.chunks(newest):
                memory = self.slots(chunk, base, slot_bytes, n_cut, offsets["header_bytes"])
                for begin in range(0, len(memory), slot_bytes or 1):
                    if 0 < memory[begin + offsets["status"]] & 7 < 7:
                        yield Goroutine(memory[begin : begin + offsets["header_bytes"]], offsets)

    @staticmethod
    def chunks(at):
        """The chunks of a list, each once, although damaged memory may make the list a ring."""
        seen = set()
        while at and at not in seen:
            seen.add(at)
            try:
                after, *chunk = words(at, 4)
            except gdb.MemoryError:
                return incomplete(f"the chunk of goroutines at {at:#x}, and those after it, cannot be read")
            yield at, *chunk
            at = after
        if at:
            incomplete(f"the list of chunks is damaged: it comes to the one at {at:#x} again")

    @staticmethod
    def slots(chunk, base, slot_bytes, n_cut, header_bytes):
        """The memory of a chunk's slots; nothing where it makes no sense."""
        if slot_bytes < header_bytes or slot_bytes * n_cut > CHUNK_BYTES:
            incomplete(f"the chunk of goroutines at {chunk:#x} is damaged: it has {n_cut} slots of {slot_bytes} bytes")
            return b""
        try:
            return read(base, slot_bytes * n_cut) if n_cut else b""
        except gdb.MemoryError:
            incomplete(f"the {n_cut} goroutines at {base:#x} cannot be read")
            return b""

    @staticmethod
    def magic(place):
        try:
            return read(place, len(MAGIC))
        except gdb.MemoryError:
            raise gdb.GdbError("the core file lacks the program's data") from None


class Goroutine:
    def __init__(self, header, offsets):
        self.header = header
        self.offsets = offsets
        status = self.word("status")
        self.kind = status & 7
        self.reason = status >> 8 & 0x7F
        self.since = status >> 42
        self.id = self.word("id")

    def word(self, field):
        return struct.unpack_from("<Q", self.header, self.offsets[field])[0]

    @property
    def state(self):
        if self.kind == WAITING:
            reason = REASONS[self.reason] if self.reason < len(REASONS) else "waiting"
            is_off_stack = self.word("out") & (self.offsets["linked"] + 1)
            return f"{reason} without a stack" if is_off_stack else reason
        return STATES[self.kind]

    @property
    def name(self):
        details = self.word("details")
        try:
            at, n = words(details + self.offsets["name"], 2) if details else (0, 0)
            return text(at, n) if at else None
        except gdb.MemoryError:
            return "?"

    @property
    def site(self):
        """Where it was spawned."""
        return stopped.site(self.word("site"))

    @property
    def waited_s(self):
        steps = (stopped.now - self.since) & ((1 << SECONDS_BITS) - 1)
        return 0 if steps >> (SECONDS_BITS - 1) else steps * STEP_NS // 10**9

    def way_out(self):
        """The root of its own stack, and the address of the other stack on which it runs, or 0."""
        out = self.word("out")
        tag = out & self.offsets["linked"]
        if not tag:
            return out, 0
        link = out & ~tag
        return tuple(words(link + self.offsets[field], 1)[0] for field in ("link_out", "link_extra"))

    def span(self):
        """The stack that it runs on, from its lowest known address to its root."""
        root, extra = self.way_out()
        if extra:
            return words(extra + self.offsets["span"], 2)
        # Of the coroutine's words, the lowest in its stack is the stack's bottom, with tags. A stack has at most
        # 8 times the bytes that were asked for, which are counted in KiB.
        asked = max(struct.unpack_from("<I", self.header, self.offsets["stack_bytes"])[0], 64) * 1024
        bottom = min((w for w in self.coro() if root - 8 * asked <= w < root), default=None)
        return bottom and ((bottom & ~0xFFF) + 0x1000, root)

    def coro(self):
        begin, end = self.offsets["coro"], self.offsets["coro_end"]
        return struct.unpack(f"<{(end - begin) // 8}Q", self.header[begin:end])

    def position(self):
        """Where its saved registers are on its stack; None if it is not suspended."""
        span = self.span() if self.kind in (RUNNABLE, WAITING, CANCELLING) else None
        # The start and the present position of the stack; it grows down.
        return min((w for w in self.coro() if span[0] <= w < span[1] and w % 8 == 0), default=None) if span else None

    def saved(self):
        """The registers with which it goes on; None if it is not suspended."""
        at = self.position()
        return ARCHITECTURE.registers(at) if at else None

    def thread(self):
        """The thread whose stack pointer lies in its stack."""
        try:
            span = self.span() if self.kind in (RUNNING, BLOCKED) else None
        except gdb.MemoryError:
            return None
        return span and next((t for t, sp in stopped.stack_pointers if span[0] <= sp < span[1]), None)

    def line(self):
        parts = [self.state]
        minutes = self.waited_s // 60 if self.kind == WAITING else 0
        if minutes:
            parts.append(f"{minutes} minute{'s' if minutes > 1 else ''}")
        thread = self.thread()
        if thread:
            parts.append(f"thread {thread.num}")
        name = self.name
        if name:
            parts.append(f'name "{name}"')
        return f"goroutine {self.id} [{', '.join(parts)}], spawned at {self.site}"


class X86:
    SP, PC = "rsp", "rip"

    @staticmethod
    def registers(sp):
        pc, rbx, rbp = words(sp, 3)
        return {"rip": pc, "rbx": rbx, "rbp": rbp, "rsp": sp + 24}


class Aarch64:
    SP, PC = "sp", "pc"

    @staticmethod
    def registers(sp):
        x19, fp, pc, _ = words(sp, 4)
        return {"pc": pc, "x19": x19, "x29": fp, "sp": sp + 32}


def architecture():
    name = gdb.selected_inferior().architecture().name()
    if name.startswith("i386:x86-64"):
        return X86
    if name.startswith("aarch64"):
        return Aarch64
    raise gdb.GdbError(f"windlass has no goroutines on {name}")


ARCHITECTURE = X86


def stack_pointers():
    """The threads with their stack pointers."""
    selected = gdb.selected_thread()
    found = []
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        found.append((thread, int(gdb.newest_frame().read_register(ARCHITECTURE.SP))))
    if selected:
        selected.switch()
    return found


class Selection:
    """The goroutine whose frames are shown in place of those of a thread."""

    def __init__(self, registers):
        self.registers = registers
        self.root = address_of(ROOT)
        self.thread = gdb.selected_thread().ptid
        self.sp = int(gdb.newest_frame().read_register(ARCHITECTURE.SP))


selection = None


def address_of(symbol):
    found = re.search(r"0x[0-9a-f]+", gdb.execute(f"info address {symbol}", to_string=True))
    return int(found[0], 16) if found else 0


def select(new):
    global selection
    selection = new
    gdb.invalidate_cached_frames()


class Unwinder(gdb.unwinder.Unwinder):
    """Says that the innermost frame of the selected thread was called by the selected goroutine."""

    def __init__(self):
        super().__init__("windlass")

    def __call__(self, frame):
        if selection is None or gdb.selected_thread().ptid != selection.thread:
            return None
        sp = frame.read_register(ARCHITECTURE.SP)
        if int(sp) == selection.sp:
            return self.caller(frame, selection.registers)
        if 0 <= int(frame.read_register(ARCHITECTURE.PC)) - selection.root < ROOT_BYTES:
            # A walk ends at an address of 0.
            return self.caller(frame, {ARCHITECTURE.PC: 0, ARCHITECTURE.SP: int(sp) + 16})
        return None

    @staticmethod
    def caller(frame, registers):
        sp = frame.read_register(ARCHITECTURE.SP)
        below = gdb.Value(registers[ARCHITECTURE.SP] - 16).cast(sp.type)
        info = frame.create_unwind_info(gdb.unwinder.FrameId(below, frame.read_register(ARCHITECTURE.PC)))
        for name, value in registers.items():
            info.add_saved_register(name, gdb.Value(value).cast(frame.read_register(name).type))
        return info


try:
    gdb.unwinder.FrameId
except AttributeError:
    # Before gdb 14.
    class FrameId:
        def __init__(self, sp, pc):
            self.sp = sp
            self.pc = pc

    gdb.unwinder.FrameId = FrameId


def is_of_goroutine(frame):
    """Whether a frame is one of the selected goroutine, not the thread's innermost or what is inlined there."""
    return int(frame.read_register(ARCHITECTURE.SP)) != selection.sp


class WithoutThread:
    """Leaves the thread's own frame out of backtraces of a selected goroutine."""

    name = "windlass"
    enabled = True
    priority = 1

    def filter(self, frames):
        if selection is None:
            return frames
        return itertools.dropwhile(lambda decorated: not is_of_goroutine(decorated.inferior_frame()), known(frames))


def known(frames):
    """The frames up to one whose caller is not known: on aarch64 the outermost function of a stack does not save it."""
    try:
        yield from frames
    except gdb.error as e:
        if "was not saved" not in str(e):
            raise


def walk():
    """The frames of the selected thread, the innermost first."""
    return known(all_frames())


def all_frames():
    frame = gdb.newest_frame()
    while frame is not None and frame.is_valid() and frame.pc() != 0:
        yield frame
        frame = frame.older()


def goroutine_frames():
    """The frames of the selected goroutine, the innermost first."""
    return itertools.dropwhile(lambda frame: not is_of_goroutine(frame), walk())


class Described:
    """A frame as it is printed."""

    def __init__(self, frame):
        place = frame.find_sal()
        self.path = place.symtab.fullname() if place.symtab else ""
        self.name = self.full_name(frame)
        self.place = f"{self.path}:{place.line}" if place.symtab else "?"

    @staticmethod
    def full_name(frame):
        """With the path of its module where the symbol table has it, without generic arguments."""
        # Of a caller, the address after the call, which may be in the next function.
        pc = frame.pc() if frame.level() == 0 else frame.pc() - 1
        found = re.match(r"(.+?) (\+ \d+ )?in section ", gdb.execute(f"info symbol {pc}", to_string=True))
        name = frame.name() or hex(frame.pc())
        # A function that was inlined has no symbol of its own.
        name = found[1] if found and frame.type() != gdb.INLINE_FRAME else name
        return re.sub(r"::h[0-9a-f]{16}$", "", without_types(name))

    def is_plumbing(self):
        return "/rustc/" in self.path or "/library/" in self.path or self.name.startswith(("core::", "std::", "alloc::"))

    def is_root(self):
        return ROOT in self.name

    def is_library(self):
        return "/corosensei-" in self.path

    def __str__(self):
        return f"    {self.name}\n        {self.place}"


def without_types(name):
    """A function's name without generic arguments, which may be nested."""
    shorter = re.sub(r"(?<=[\w>}\]])(::)?<[^<>]*>", "", name.replace("->", "\0"))
    return name if shorter == name.replace("->", "\0") else without_types(shorter.replace("\0", "->"))


def own(frames):
    """The program's part: from the function that called windlass down to the goroutine's closure."""
    end = next((i for i, f in enumerate(frames) if f.is_root()), len(frames))
    frames = frames[:end]
    # The call that begins a goroutine lies in windlass: so does all of its folder.
    begin = next((f.path for f in reversed(frames) if f.path.endswith("src/sched/wait/spawn.rs")), None)
    folder = begin.removesuffix("sched/wait/spawn.rs") if begin else "/windlass-"
    of_program = [not f.is_plumbing() and not f.is_library() and folder not in f.path and bool(f.path) for f in frames]
    if not any(of_program):
        return frames
    last = len(frames) - of_program[::-1].index(True)
    return [f for f in frames[of_program.index(True) : last] if not f.is_plumbing()]


def backtrace(goroutine, full):
    """The lines of its stack."""
    try:
        return frames_of(goroutine, full)
    except gdb.error as e:
        return [f"    its stack cannot be read: {e}"]


def frames_of(goroutine, full):
    """The lines of a stack that can be read."""
    thread = goroutine.thread()
    saved = goroutine.saved()
    before, selected = selection, gdb.selected_thread()
    if thread:
        thread.switch()
        described = [Described(f) for f in itertools.islice(walk(), MAX_FRAMES)]
        selected.switch()
    elif saved:
        select(Selection(saved))
        try:
            described = [Described(f) for f in itertools.islice(goroutine_frames(), MAX_FRAMES)]
        finally:
            select(before)
    elif goroutine.kind in (RUNNING, BLOCKED):
        return ["    it runs, and no thread is on its stack: it is being switched"]
    else:
        return ["    it has no stack" if goroutine.word("out") else "    it has not begun"]
    shown = described if full else own(described)
    rest = [f"    .. and {len(shown) - MAX_SHOWN} more"] if len(shown) > MAX_SHOWN else []
    return [str(f) for f in shown[:MAX_SHOWN]] + rest


def is_live():
    connection = getattr(gdb.selected_inferior(), "connection", None)
    return connection is not None and connection.type == "native"


class Stopped:
    """What is read once while the process stands still."""

    def __init__(self):
        self.goroutines = sorted(Registry(), key=lambda g: g.id)
        self.stack_pointers = stack_pointers()
        self.sites = {}
        if is_live():
            self.now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // STEP_NS & ((1 << SECONDS_BITS) - 1)
        else:
            # The last wait of all.
            self.now = max((g.since for g in self.goroutines if g.kind == WAITING), default=0)

    def site(self, at):
        """A place in the source."""
        if at not in self.sites:
            try:
                file, n, line, column = struct.unpack("<QQII", read(at, 24))
                self.sites[at] = f"{text(file, n)}:{line}:{column}"
            except gdb.MemoryError:
                self.sites[at] = "?"
        return self.sites[at]


stopped = None


def forget(_event):
    """The process has gone on, or is another one."""
    global stopped
    stopped = None
    select(None)


def all_goroutines():
    """By number."""
    global ARCHITECTURE, stopped
    if gdb.selected_thread() is None:
        raise gdb.GdbError("there is no process: use run, attach, or a core file")
    ARCHITECTURE = architecture()
    stopped = stopped or Stopped()
    return stopped.goroutines


def one(number):
    for goroutine in all_goroutines():
        if goroutine.id == number:
            return goroutine
    raise gdb.GdbError(f"there is no goroutine {number}: info goroutines lists them")


class InfoGoroutines(gdb.Command):
    """Lists the goroutines of windlass: info goroutines [-all] [TEXT]

    With TEXT, those whose line contains it. With -all, more than the first 1000."""

    def __init__(self):
        super().__init__("info goroutines", gdb.COMMAND_STATUS)

    def invoke(self, argument, _from_tty):
        shows_all = "-all" in argument.split()
        wanted = argument.replace("-all", "", 1).strip() if shows_all else argument.strip()
        goroutines = all_goroutines()
        n_listed = n_found = 0
        for goroutine in goroutines:
            if n_listed >= MAX_LISTED and not shows_all and not wanted:
                break
            line = goroutine.line()
            if wanted not in line:
                continue
            n_found += 1
            if shows_all or n_listed < MAX_LISTED:
                gdb.write(line + "\n")
                n_listed += 1
        n_more = (n_found if wanted else len(goroutines)) - n_listed
        if n_more:
            gdb.write(f"and {n_more} more: info goroutines -all lists them\n")
        states = collections.Counter(g.state for g in goroutines)
        sums = ", ".join(f"{n} {state}" for state, n in states.most_common())
        gdb.write(f"{len(goroutines)} goroutines: {sums}\n" if goroutines else "no goroutines\n")


class GoroutineCommand(gdb.Command):
    """Shows or selects a goroutine of windlass.

    goroutine N bt [-full]     its stack, of the program's own functions; or all of it
    goroutine all bt [-full]   the stacks of all goroutines, equal ones once
    goroutine N                selects it, for bt, up, down, frame, info locals
    goroutine off              goes back to the thread"""

    def __init__(self):
        super().__init__("goroutine", gdb.COMMAND_STACK)

    def invoke(self, argument, _from_tty):
        which, *command = argument.split() or [""]
        full = "-full" in command
        if [c for c in command if c != "-full"] not in ([], ["bt"]) or not (which.isdigit() or which in ("all", "off")):
            raise gdb.GdbError("usage: goroutine N [bt [-full]], goroutine all bt [-full], or goroutine off")
        if which == "off":
            select(None)
        elif which == "all":
            self.show_all(full)
        elif command:
            goroutine = one(int(which))
            lines = [goroutine.line()] + backtrace(goroutine, full)
            gdb.write("\n".join(lines) + "\n")
        else:
            self.select(one(int(which)))

    @staticmethod
    def select(goroutine):
        try:
            thread, saved = goroutine.thread(), goroutine.saved()
        except gdb.MemoryError as e:
            raise gdb.GdbError(f"the stack of goroutine {goroutine.id} cannot be read: {e}") from None
        if thread:
            select(None)
            thread.switch()
        elif saved:
            select(Selection(saved))
            innermost = next(goroutine_frames(), None)
            if innermost is None:
                select(None)
                raise gdb.GdbError(f"the stack of goroutine {goroutine.id} is damaged: it has no frames")
            innermost.select()
        else:
            raise gdb.GdbError(f"goroutine {goroutine.id} is {goroutine.state} and has no frames to show")
        gdb.write(goroutine.line() + "\n")
        gdb.execute("frame")

    @staticmethod
    def show_all(full):
        groups = collections.defaultdict(list)
        for goroutine in all_goroutines():
            groups[key(goroutine)].append(goroutine)
        for members in sorted(groups.values(), key=len, reverse=True):
            first = members[0]
            numbers = ", ".join(str(g.id) for g in members[:10]) + (", .." if len(members) > 10 else "")
            plural = "s" if len(members) > 1 else ""
            gdb.write(f"{len(members)} goroutine{plural} [{first.state}], spawned at {first.site}: {numbers}\n")
            gdb.write("\n".join(backtrace(first, full)) + "\n\n")


def key(goroutine):
    """Equal for goroutines that wait at the same place: the same spawn site, wait and depth of stack. Stacks are not read: a
    page of a core file for each goroutine."""
    try:
        at = goroutine.position()
        depth = goroutine.way_out()[0] - at if at else 0
    except gdb.MemoryError:
        return goroutine.id
    return goroutine.state, goroutine.word("site"), depth, goroutine.id if goroutine.kind in (RUNNING, BLOCKED) else 0


gdb.unwinder.register_unwinder(None, Unwinder(), replace=True)
gdb.frame_filters[WithoutThread.name] = WithoutThread()
for event in (gdb.events.cont, gdb.events.exited, gdb.events.new_objfile, gdb.events.memory_changed):
    event.connect(forget)
InfoGoroutines()
GoroutineCommand()
