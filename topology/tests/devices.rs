//! Devices of a made-up `/sys`, and what is near them.

use windlass_topology::{
    Device, DeviceKind, Topology,
    diff::diff,
    render::{self, Paint, dot, svg},
};

use crate::util::{Dir, expect, synthetic};

mod util;

/// CPUs 0 and 1 on node 0, CPUs 2 and 3 on node 1, memory alone on node 2, which is nearer to node 1.
fn two_nodes() -> Dir {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-3\n");
    for cpu in 0..4 {
        let (own, package) = (cpu.to_string(), cpu as u32 / 2);
        dir.cpu(cpu, package, &own, &own, ["0-1", "2-3"][cpu / 2]);
    }
    dir.node(0, "0-1", 1024, "10 21 31");
    dir.node(1, "2-3", 1024, "21 10 17");
    dir.node(2, "", 4096, "31 17 10");
    dir
}

/// A server: a network card with two ports, of which one is given to user space and one is split into
/// virtual cards; a disk of NVMe, one with several paths, one behind a virtual bus; a GPU; an accelerator; a
/// network card on USB; and what is no hardware.
fn server() -> Dir {
    let dir = two_nodes();
    dir.pci("0000:3b:00.0", "0x020000", "0", "0-1");
    dir.class("net", "ens1f0", "pci0000:00/0000:3b:00.0");
    dir.pci("0000:3b:00.1", "0x020000", "0", "0-1");
    dir.pci("0000:3b:02.0", "0x020000", "0", "0-1");
    dir.link(
        "sys/devices/pci0000:00/0000:3b:02.0/physfn",
        "../0000:3b:00.0",
    );
    dir.write("sys/devices/virtual/net/lo/uevent", "");
    dir.link("sys/class/net/lo", "../../devices/virtual/net/lo");

    dir.pci("0000:5e:00.0", "0x010802", "1", "2-3");
    dir.class("nvme", "nvme0", "pci0000:00/0000:5e:00.0");
    dir.class("block", "nvme0n1", "pci0000:00/0000:5e:00.0/nvme/nvme0");
    dir.class("block", "nvme0n1p1", "pci0000:00/0000:5e:00.0/nvme/nvme0");
    dir.write("sys/class/block/nvme0n1p1/partition", "1\n");
    dir.pci("0000:5f:00.0", "0x010802", "2", "2-3");
    dir.class("nvme", "nvme1", "pci0000:00/0000:5f:00.0");
    dir.class("block", "nvme1c1n1", "pci0000:00/0000:5f:00.0/nvme/nvme1");
    dir.write("sys/class/block/nvme1c1n1/hidden", "1\n");
    dir.pci("0000:00:02.0", "0x010000", "-1", "0-3");
    dir.class("block", "vda", "pci0000:00/0000:00:02.0/virtio1");
    dir.pci("0000:00:1f.2", "0x010601", "0", "0-1");

    dir.pci("0000:86:00.0", "0x030200", "1", "2-3");
    dir.class("drm", "card0", "pci0000:00/0000:86:00.0");
    dir.class("drm", "card0-DP-1", "pci0000:00/0000:86:00.0");
    dir.class("drm", "renderD128", "pci0000:00/0000:86:00.0");
    dir.pci("0000:da:00.0", "0x120000", "-1", "2");
    dir.pci("0000:00:14.0", "0x0c0330", "0", "0-1");
    dir.class("net", "enx00e04c680001", "pci0000:00/0000:00:14.0/usb1/1-1");
    dir
}

fn machine(dir: &Dir) -> Topology {
    Topology::from_sysfs(dir.path()).unwrap()
}

fn shown(machine: &Topology) -> Vec<String> {
    let line = |device: &Device| {
        let node = device.node.map_or("?".to_owned(), |id| id.to_string());
        format!("{} {} {node} {:?}", device.name, device.kind, device.cpus)
    };
    machine.devices().iter().map(line).collect()
}

#[test]
fn hardware_is_found_by_class_and_on_the_bus() {
    assert_eq!(
        shown(&machine(&server())),
        [
            "enx00e04c680001 network 0 [0, 1]",
            "ens1f0 network 0 [0, 1]",
            "0000:3b:00.1 network 0 [0, 1]",
            "vda storage ? [0, 1, 2, 3]",
            "nvme0n1 storage 1 [2, 3]",
            "nvme1 storage 2 [2, 3]",
            "card0 GPU 1 [2, 3]",
            "0000:da:00.0 accelerator 1 [2]",
        ]
    );
}

#[test]
fn near_is_the_nearest_node_with_cpus_that_may_be_used() {
    let machine = machine(&server());
    let near = |machine: &Topology, name: &str| {
        let near = machine.near(machine.device(name).unwrap())?;
        Some((near.node, near.distance, near.cpus))
    };
    assert_eq!(near(&machine, "ens1f0"), Some((0, 10, vec![0, 1])));
    assert_eq!(near(&machine, "0000:3b:00.0"), Some((0, 10, vec![0, 1])));
    // Its node has no CPUs.
    assert_eq!(near(&machine, "nvme1"), Some((1, 17, vec![2, 3])));
    // The kernel says that one of the two CPUs is local.
    assert_eq!(near(&machine, "0000:da:00.0"), Some((1, 10, vec![2])));
    assert_eq!(near(&machine, "vda"), None);
    assert_eq!(machine.device("lo"), None);

    let in_a_cpuset = machine.restrict_to_cpus(&[1]).unwrap();
    assert_eq!(near(&in_a_cpuset, "ens1f0"), Some((0, 10, vec![1])));
    assert_eq!(near(&in_a_cpuset, "card0"), Some((0, 21, vec![1])));
    assert_eq!(near(&in_a_cpuset, "nvme1"), Some((0, 31, vec![1])));

    // A device of another machine, on a node that this one does not have.
    let nvme1 = machine.device("nvme1").unwrap();
    assert_eq!(synthetic("pu:2").near(nvme1), None);
}

#[test]
fn one_node_is_near_everything() {
    let dir = Dir::new();
    dir.write("sys/devices/system/cpu/online", "0-1\n");
    dir.pci("0000:00:02.0", "0x010000", "-1", "0-1");
    dir.class("block", "vda", "pci0000:00/0000:00:02.0/virtio1");
    let machine = machine(&dir);
    let near = machine.near(&machine.devices()[0]).unwrap();
    assert_eq!((near.node, near.cpus), (0, vec![0, 1]));
}

/// With files that are missing or have odd content, the machine is read all the same, and its devices are consistent.
#[test]
fn odd_files_are_no_reason_to_fail() {
    let texts = [
        "",
        "-1",
        "7",
        "99999999999",
        "node",
        "\0",
        "0-1",
        "4-9",
        "1-0",
        "ff,,f",
    ];
    let dir = two_nodes();
    dir.pci("0000:01:00.0", "0x02", "", "");
    dir.class("net", "eth0", "pci0000:00/0000:01:00.0");
    let folder = "sys/devices/pci0000:00/0000:01:00.0";
    for (node, cpus) in texts
        .iter()
        .flat_map(|a| texts.iter().map(move |b| (*a, *b)))
    {
        dir.write(&format!("{folder}/numa_node"), node);
        dir.write(&format!("{folder}/local_cpulist"), cpus);
        let machine = machine(&dir);
        let [eth0] = machine.devices() else {
            panic!("{:?}", machine.devices());
        };
        let of_cpus = (cpus == "0-1").then_some(0);
        assert_eq!(eth0.node, of_cpus, "{node:?} {cpus:?}");
        let json = machine.to_json();
        assert_eq!(Topology::from_json(&json).unwrap(), machine);
    }
    let dir = two_nodes();
    // Links that lead nowhere, in circles, and out of the copy; a class that is a file; no class at all.
    dir.link("sys/class/net/gone", "../../devices/gone");
    dir.link("sys/class/net/circle", "circle");
    dir.link("sys/class/net/out/device", "/proc/self");
    dir.write("sys/class/drm", "");
    dir.write("sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n");
    dir.write("sys/bus/pci/devices/0000:03:00.0/class", "0x0300\n");
    dir.write("sys/bus/pci/devices/0000:04:00.0/class", "0xé3\n");
    assert_eq!(
        shown(&machine(&dir)),
        ["out network ? []", "0000:03:00.0 GPU ? []"]
    );
}

#[test]
fn a_recording_has_devices_but_no_hardware_addresses() {
    let here = machine(&server());
    let json = here.to_json();
    assert!(!json.contains("00e04c680001"), "{json}");
    let recorded = Topology::from_json(&json).unwrap();
    assert_eq!(recorded.devices()[0].name, "enx");
    assert_eq!(recorded.devices()[1..], here.devices()[1..]);
    assert_eq!(recorded.devices()[0].kind, DeviceKind::Network);
    assert!(diff(&here, &recorded).is_empty());
    let other = machine(&two_nodes());
    let changes = diff(&here, &other);
    assert_eq!(changes.len(), here.devices().len());
    assert_eq!(changes[0].what, "device 0000:3b:00.1");
    assert_eq!(changes[0].a.as_deref(), Some("network, node 0"));
}

#[test]
fn a_recorded_device_is_not_believed() {
    let json = machine(&server()).to_json();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let with = |field: &str, value: serde_json::Value| {
        let mut json = json.clone();
        json["devices"][1][field] = value;
        Topology::from_json(&json.to_string())
    };
    let error = with("node", 9.into()).unwrap_err().to_string();
    assert!(
        error.contains("device ens1f0 is on node 9, which is missing"),
        "{error}"
    );
    for cpus in [[0, 9], [1, 0], [1, 1]] {
        let error = with("cpus", cpus.to_vec().into()).unwrap_err().to_string();
        assert!(error.contains("names CPUs that are not online"), "{error}");
    }
    for field in ["name", "pci"] {
        let tamed = with(field, "\x1b]0;title\x07".into()).unwrap();
        let tree = render::tree(&tamed, Paint::Plain);
        assert!(!tree.contains(['\x1b', '\x07']), "{tree}");
    }
}

#[test]
fn every_view_of_the_machine_has_its_devices() {
    let machine = machine(&server());
    let text = [
        render::tree(&machine, Paint::Plain),
        render::art(&machine, 100, false, Paint::Plain),
    ];
    expect("devices.txt", &text.join("\n"));
    let picture = svg::tree(&machine);
    for device in machine.devices() {
        let title = format!(">{} · {}</text>", device.name, device.kind);
        assert_eq!(picture.matches(&title).count(), 1, "{title}");
    }
    let graph = dot::tree(&machine);
    assert!(graph.contains("node0 -> device1;\n"), "{graph}");
    assert!(graph.contains("machine -> device3;\n"), "{graph}");
}
