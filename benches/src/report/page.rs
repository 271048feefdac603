//! The page: the text of `template.md`, and tables made of the results.
//!
//! A line `{{NAME}}` or `{{NAME ARGUMENT}}` of the template stands for what is made:
//!
//! - `{{machine}}`: the machine, the commit, the versions
//! - `{{runs}}`: how each run was made, and a warning if the machine was busy
//! - `{{standing}}`: the headline, and in how many rows windlass is first, level or behind
//! - `{{losses}}`: the rows in which it loses
//! - `{{topic NAME}}`: chart and table of a topic
//! - `{{numa}}`: chart, table and verdicts of the bench `numa`

use std::fmt::Write as _;

use serde_json::Value;

use super::topics::{self, TOPICS, Topic};
use super::verdict::{Better, Verdict, cell, display, figure};
use super::{Input, Results, chart};
use crate::results::Row;

/// The text of the page.
pub const TEMPLATE: &str = include_str!("template.md");

/// The policies of the bench `numa`, by their names in its results, and for a reader.
pub const POLICIES: [(&str, &str); 6] = [
    ("flat", "flat"),
    ("levels", "levels"),
    ("+gate", "+gate"),
    ("+late stack", "+late stack"),
    ("+home wake", "+home wake (default)"),
    ("default", "default"),
];

/// Those that some results have.
fn policies_of(results: &Results) -> Vec<(&'static str, &'static str)> {
    let has = |policy: &str| {
        let mut cells = results.rows.iter().flat_map(|(row, _)| &row.cells);
        cells.any(|(name, _)| name == policy)
    };
    POLICIES
        .into_iter()
        .filter(|(policy, _)| has(policy))
        .collect()
}

const GENERATED: &str = "<!-- Made by `make benchmarks-page` of docs/benchmarks/*.json and \
    benches/src/report/template.md: change those. -->";
const NOTHING: &str = "Not measured yet.\n";

/// Fewer rounds give no range to go by.
const FEW_ROUNDS: u64 = 3;
/// A machine is busy if other programs, or the host, take more than this share of its CPU time.
const BUSY: f64 = 0.05;
/// Or, where that was not measured, with this load average before the run.
const BUSY_LOAD: f64 = 4.0;

/// The page of these results.
///
/// # Errors
///
/// Names a directive that there is not, or a topic that is missing.
pub fn page(input: &Input, template: &str) -> Result<String, String> {
    let mut text = format!("{GENERATED}\n");
    let mut missing: Vec<_> = TOPICS.iter().map(|topic| topic.name).collect();
    for line in template.lines() {
        let directive = line
            .strip_prefix("{{")
            .and_then(|line| line.strip_suffix("}}"));
        let Some(directive) = directive else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let (name, argument) = directive.split_once(' ').unwrap_or((directive, ""));
        text.push_str(&match name {
            "machine" => machine(input),
            "runs" => runs(input),
            "standing" => standing(input),
            "losses" => losses(input),
            "numa" => numa(input),
            "topic" => {
                let is_it = |topic: &&Topic| topic.name == argument;
                let topic = TOPICS.iter().find(is_it);
                let topic = topic.ok_or_else(|| format!("there is no topic {argument}"))?;
                missing.retain(|name| *name != argument);
                section(topic, input)
            }
            _ => return Err(format!("there is no directive {line}")),
        });
    }
    if missing.is_empty() {
        Ok(text)
    } else {
        Err(format!(
            "the template has no table of {}",
            missing.join(", ")
        ))
    }
}

fn machine(input: &Input) -> String {
    let Some(compare) = &input.compare else {
        return NOTHING.to_owned();
    };
    describe(&compare.machine)
}

/// A sentence each on the machine, the commit and the versions.
pub fn describe(machine: &Value) -> String {
    let number = |key: &str| machine[key].as_u64();
    let mut parts = vec![machine["cpu"].as_str().unwrap_or("CPU unknown").to_owned()];
    parts.extend(number("cpus").map(|n| plural(n, "CPU")));
    parts.extend(number("memory_gib").map(|n| format!("{n} GiB")));
    parts.extend(number("nodes").map(|n| plural(n, "NUMA node")));
    parts.extend(
        machine["kernel"]
            .as_str()
            .map(|release| format!("Linux {release}")),
    );
    let kind = match machine["virtual"].as_bool() {
        Some(true) => "A virtual machine: ",
        _ => "",
    };
    let mut text = format!("{kind}{}.", parts.join(", "));
    if let Some(commit) = machine["commit"].as_str() {
        let _ = write!(text, " Commit {}", &commit[..commit.len().min(10)]);
        if machine["changed_since_commit"] == true {
            text.push_str(", with changes that are not in it");
        }
        text.push('.');
    }
    let versions = ["rustc", "tokio", "may", "monoio", "compio", "go"]
        .iter()
        .filter_map(|name| Some((display(name), machine["versions"][name].as_str()?)));
    let versions: Vec<_> = versions
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    if !versions.is_empty() {
        let _ = write!(text, " {}.", versions.join(", "));
    }
    text.push('\n');
    text
}

fn plural(n: u64, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}

fn runs(input: &Input) -> String {
    let Some(compare) = &input.compare else {
        return NOTHING.to_owned();
    };
    let mut text = String::new();
    if compare.runs.iter().any(is_busy) {
        text.push_str(
            "> **The machine was busy** with other work during the runs that are marked so: their times mean\n\
             > little, and so do differences of a few tenths. CPU times and bytes suffer less.\n\n",
        );
    }
    if compare
        .runs
        .iter()
        .any(|run| run["rounds"].as_u64() < Some(FEW_ROUNDS))
    {
        text.push_str(
            "> **Few rounds**: the ranges are too narrow or missing, so a verdict may be chance.\n\n",
        );
    }
    text.push_str(
        "| run | command | began | rounds | load before | other work | steal |\n|---|---|---|---|---|---|---|\n",
    );
    for (i, run) in compare.runs.iter().enumerate() {
        let word = |key: &str| run[key].as_str().unwrap_or("–").to_owned();
        let _ = writeln!(
            text,
            "| {}{} | `{}` | {} | {} | {} | {} | {} |",
            i + 1,
            if is_busy(run) { " **busy**" } else { "" },
            word("command"),
            word("date"),
            run["rounds"].as_u64().unwrap_or(0),
            load(run).map_or_else(|| "–".to_owned(), |load| format!("{load:.1}")),
            percent(&run["other_work"]),
            percent(&run["steal"]),
        );
    }
    text
}

/// The load average of the minute before a run.
fn load(run: &Value) -> Option<f64> {
    run["load_average_before"][0].as_f64()
}

fn is_busy(run: &Value) -> bool {
    let is_much = |key: &str| run[key].as_f64().is_some_and(|share| share > BUSY);
    // Without a figure of other work the load has to do, of which earlier runs are a part.
    let is_loaded = run["other_work"].is_null() && load(run) > Some(BUSY_LOAD);
    is_much("steal") || is_much("other_work") || is_loaded
}

fn percent(share: &Value) -> String {
    share
        .as_f64()
        .map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// How windlass stands in each row that has a peer: the label and the verdict.
fn verdicts(compare: &Results) -> Vec<(String, &'static str, Verdict)> {
    let mut verdicts = Vec::new();
    for topic in TOPICS {
        for (i, figure) in topic.figures().enumerate() {
            let Some((row, _)) = compare.row(figure.experiment, figure.key) else {
                continue;
            };
            let verdict = Verdict::of(row);
            if verdict != Verdict::Alone {
                verdicts.push((topics::full_label(topic, i), figure.unit, verdict));
            }
        }
    }
    verdicts
}

/// "Of 80 rows .."
fn count(verdicts: &[(String, &str, Verdict)]) -> String {
    let of = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|(.., v)| is(v)).count();
    format!(
        "Of the {} rows that have a peer, windlass is ahead of all in {}, level with the best in {}, and behind in {}.",
        verdicts.len(),
        of(|v| matches!(v, Verdict::First { .. })),
        of(|v| matches!(v, Verdict::Level { .. })),
        of(|v| matches!(v, Verdict::Loses { .. })),
    )
}

fn standing(input: &Input) -> String {
    let Some(compare) = &input.compare else {
        return NOTHING.to_owned();
    };
    let count = count(&verdicts(compare));
    format!("{}{count}\n", picture(compare, "img/bench"))
}

/// The headline's chart, which lies in this folder.
fn picture(compare: &Results, folder: &str) -> String {
    let is_there = |(experiment, key): &(&str, &str)| compare.row(experiment, key).is_some();
    if topics::HEADLINE.iter().any(is_there) {
        format!("![windlass beside its peers]({folder}/headline.svg)\n\n")
    } else {
        String::new()
    }
}

fn losses(input: &Input) -> String {
    let Some(compare) = &input.compare else {
        return NOTHING.to_owned();
    };
    let verdicts = verdicts(compare);
    let losses = verdicts
        .iter()
        .filter(|(.., v)| matches!(v, Verdict::Loses { .. }));
    let lines: Vec<_> = losses
        .map(|(label, unit, verdict)| format!("| {label} | {unit} | {} |\n", verdict.words()))
        .collect();
    if lines.is_empty() {
        return "Nowhere in these runs.\n".to_owned();
    }
    format!(
        "| row | unit | verdict |\n|---|---|---|\n{}",
        lines.concat()
    )
}

/// Command, chart and table of a topic.
fn section(topic: &Topic, input: &Input) -> String {
    let rows: Vec<_> = topic
        .figures()
        .filter_map(|figure| {
            let compare = input.compare.as_ref()?;
            Some((figure, compare.row(figure.experiment, figure.key)?))
        })
        .collect();
    let only = topic.experiments().join(",");
    let mut text = format!("`make compare ARGS=\"--only {only}\"`\n\n");
    if rows.is_empty() {
        text.push_str(NOTHING);
        return text;
    }
    if rows.iter().any(|(figure, _)| figure.is_drawn) {
        let _ = writeln!(text, "![{0}](img/bench/{0}.svg)\n", topic.name);
    }
    let names: Vec<_> = topic.contenders.iter().map(|name| display(name)).collect();
    let _ = writeln!(text, "| | unit | {} | verdict |", names.join(" | "));
    let _ = writeln!(text, "|---|---|{}---|", "---|".repeat(names.len()));
    for (figure, (row, _)) in &rows {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            figure.label,
            unit(figure.unit, &row.key),
            cells(row, topic.contenders).join(" | "),
            verdict(row),
        );
    }
    let mut runs: Vec<_> = rows.iter().map(|(_, (_, run))| run + 1).collect();
    runs.sort_unstable();
    runs.dedup();
    let numbers: Vec<_> = runs.iter().map(ToString::to_string).collect();
    let word = if runs.len() == 1 { "Run" } else { "Runs" };
    let _ = writeln!(text, "\n{word} {}.", numbers.join(", "));
    text
}

fn unit(unit: &str, key: &str) -> String {
    match Better::of(key) {
        Better::Lower => unit.to_owned(),
        Better::Higher => format!("{unit}, *higher is better*"),
    }
}

/// The cells of a row; the best median in bold.
fn cells(row: &Row, contenders: &[&str]) -> Vec<String> {
    let medians = row.cells.iter().map(|(_, summary)| summary.median);
    let best = match Better::of(&row.key) {
        Better::Lower => medians.fold(f64::INFINITY, f64::min),
        Better::Higher => medians.fold(0.0, f64::max),
    };
    let text = |name: &&str| {
        let found = row.cells.iter().find(|(contender, _)| contender == *name);
        let Some((_, summary)) = found else {
            return "–".to_owned();
        };
        let text = cell(summary);
        if summary.median == best && row.cells.len() > 1 {
            let (median, range) = text.split_once(" (").unwrap_or((&text, ""));
            let range = if range.is_empty() {
                String::new()
            } else {
                format!(" ({range}")
            };
            format!("**{median}**{range}")
        } else {
            text
        }
    };
    contenders.iter().map(text).collect()
}

/// In bold where windlass loses.
fn verdict(row: &Row) -> String {
    let verdict = Verdict::of(row);
    match verdict {
        Verdict::Loses { .. } => format!("**{}**", verdict.words()),
        _ => verdict.words(),
    }
}

fn numa(input: &Input) -> String {
    if input.numa.is_empty() {
        return NOTHING.to_owned();
    }
    let sections = input
        .numa
        .iter()
        .enumerate()
        .map(|(i, results)| policies(i, results));
    sections.collect::<Vec<_>>().join("\n")
}

/// The results of the policies on one machine.
fn policies(machine: usize, results: &Results) -> String {
    let mut text = describe(&results.machine);
    let run = &results.runs[0];
    let _ = write!(
        text,
        "{} on {}, {} rounds, {}",
        plural(run["workers"].as_u64().unwrap_or(0), "P"),
        plural(run["nodes"].as_u64().unwrap_or(0), "node"),
        run["rounds"].as_u64().unwrap_or(0),
        run["date"].as_str().unwrap_or("without a date"),
    );
    let other_work = percent(&run["other_work"]);
    let _ = write!(
        text,
        ", other work {other_work}, steal {}",
        percent(&run["steal"])
    );
    if is_busy(run) {
        text.push_str(": **the machine was busy**, so the times mean little");
    }
    text.push_str(".\n");
    if let Some(synthetic) = run["synthetic"].as_str() {
        let _ = writeln!(
            text,
            "The nodes are those of a description (`{synthetic}`): the times say nothing about NUMA."
        );
    }
    let _ = writeln!(
        text,
        "\n![NUMA policies](img/bench/{}.svg)\n",
        chart::numa_name(machine)
    );
    let policies = policies_of(results);
    let names: Vec<_> = policies.iter().map(|(_, name)| *name).collect();
    let _ = writeln!(text, "| ms a round | {} |", names.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(names.len()));
    let columns: Vec<_> = policies.iter().map(|(policy, _)| *policy).collect();
    for (row, _) in &results.rows {
        let cells = cells(row, &columns).join(" | ");
        let _ = writeln!(text, "| {} | {cells} |", row.experiment);
    }
    text.push_str("\nVerdicts, by pairs of the same round:\n\n");
    for line in run["verdicts"].as_array().into_iter().flatten() {
        let line = line.as_str().unwrap_or_default();
        let line = line
            .replace("TOO SLOW", "**TOO SLOW**")
            .replace(": MUCH", ": **MUCH**");
        let _ = writeln!(text, "- {line}");
    }
    text
}

const BEGIN: &str = "<!-- numbers -->\n";
const END: &str = "<!-- /numbers -->\n";
/// So many losses are named in README.md.
const NAMED: usize = 6;

/// README.md with the headline between its two marks.
///
/// # Errors
///
/// If a mark is missing.
pub fn readme(input: &Input, readme: &str) -> Result<String, String> {
    let before = readme.split_once(BEGIN);
    let (before, rest) = before.ok_or_else(|| format!("README.md has no line {BEGIN}"))?;
    let after = rest.split_once(END);
    let (_, after) = after.ok_or_else(|| format!("README.md has no line {END}"))?;
    Ok(format!(
        "{before}{BEGIN}\n{}\n{END}{after}",
        headline(input)
    ))
}

fn headline(input: &Input) -> String {
    let Some(compare) = &input.compare else {
        return NOTHING.to_owned();
    };
    let mut text = String::new();
    text.push_str(&picture(compare, "docs/img/bench"));
    let _ = write!(
        text,
        "Medians of `make compare`. {}",
        describe(&compare.machine)
    );
    if compare.runs.iter().any(is_busy) {
        text.push_str("**The machine was busy with other work, so the times are rough.**\n");
    }
    let verdicts = verdicts(compare);
    let _ = writeln!(text, "\n{}", count(&verdicts));
    let mut losses: Vec<_> = verdicts
        .iter()
        .filter_map(|(label, _, verdict)| match verdict {
            Verdict::Loses { peer, ratio } => Some((label, peer, *ratio)),
            _ => None,
        })
        .collect();
    losses.sort_by(|(.., a), (.., b)| b.total_cmp(a));
    if !losses.is_empty() {
        let named: Vec<_> = losses
            .iter()
            .take(NAMED)
            .map(|(label, peer, ratio)| {
                let times = if ratio.is_finite() {
                    format!(", {} times", figure(*ratio))
                } else {
                    String::new()
                };
                format!("{label} ({}{times})", display(peer))
            })
            .collect();
        let _ = writeln!(text, "It is furthest behind in: {}.", named.join("; "));
    }
    text.push_str(
        "[docs/BENCHMARKS.md](docs/BENCHMARKS.md) has all rows and how to repeat them.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    #[cfg(feature = "programs")]
    use crate::experiments::EXPERIMENTS;

    fn input(rows: Vec<Row>, other_work: f64) -> Input {
        let run = json!({
            "program": "compare", "command": "make compare", "date": "2026-01-02 03:04 UTC",
            "rounds": 3, "steal": 0.01, "load_average_before": [3.0, 0.0, 0.0], "other_work": other_work,
        });
        Input {
            compare: Some(Results {
                machine: json!({ "cpu": "Some CPU", "cpus": 4, "commit": "0123456789abcdef" }),
                runs: vec![run],
                rows: rows.into_iter().map(|row| (row, 0)).collect(),
            }),
            numa: Vec::new(),
        }
    }

    #[cfg(feature = "programs")]
    #[test]
    fn the_template_explains_every_experiment() {
        for experiment in EXPERIMENTS {
            let name = format!("`{}`", experiment.name);
            assert!(
                TEMPLATE.contains(&name),
                "the template does not explain {name}"
            );
        }
        page(&Input::default(), TEMPLATE).unwrap();
    }

    #[test]
    fn a_template_without_a_topic_is_refused() {
        assert!(
            page(&Input::default(), "text\n")
                .unwrap_err()
                .contains("tasks")
        );
        assert!(page(&Input::default(), "{{topic nothing}}\n").is_err());
        assert!(page(&Input::default(), "{{nothing}}\n").is_err());
    }

    #[test]
    fn a_row_has_ranges_a_verdict_and_dashes_for_who_is_missing() {
        let rows = vec![
            Row::of(
                "yield",
                "ns",
                &[("windlass", &[6.0, 6.5, 7.0]), ("may", &[4.0, 5.0, 5.5])],
            ),
            Row::of(
                "skynet",
                "ns",
                &[("windlass", &[100.0]), ("tokio", &[200.0])],
            ),
        ];
        let page = page(&input(rows, 0.01), TEMPLATE).unwrap();
        let line = "| yield, 1,000 tasks | ns a yield | 6.50 (6.00–7.00) | – | **5.00** (4.00–5.50) | – | \
            **loses to may by 30 %** |";
        assert!(page.contains(line), "{page}");
        assert!(page.contains("| **100** | 200 | – | – | ahead of tokio by a factor of 2.0 |"));
        assert!(page.contains("| yield, 1,000 tasks | ns a yield | loses to may by 30 % |"));
        assert!(page.contains("ahead of all in 1, level with the best in 0, and behind in 1."));
        assert!(!page.contains("spawn and join one"), "a row without data");
        assert!(!page.contains("**busy**"));
        assert!(page.contains("Commit 0123456789."));
    }

    #[test]
    fn a_busy_machine_is_said() {
        let rows = vec![Row::of("yield", "ns", &[("windlass", &[6.0])])];
        let busy = input(rows, 0.06);
        assert!(page(&busy, TEMPLATE).unwrap().contains(
            "| 1 **busy** | `make compare` | 2026-01-02 03:04 UTC | 3 | 3.0 | 6.0 % | 1.0 % |"
        ));
        let readme = readme(&busy, "a\n<!-- numbers -->\n<!-- /numbers -->\nb\n").unwrap();
        assert!(readme.contains("The machine was busy"));
        assert!(readme.starts_with("a\n<!-- numbers -->\n\n") && readme.ends_with("b\n"));
    }

    #[test]
    fn readme_has_to_have_its_marks() {
        assert!(readme(&Input::default(), "a\n<!-- numbers -->\n").is_err());
    }

    #[test]
    fn numa_has_a_table_and_its_verdicts() {
        let cells: &[(&str, &[f64])] = &[("flat", &[1.0]), ("default", &[2.0])];
        let numa = Results {
            machine: json!({ "cpu": "Some CPU", "cpus": 4 }),
            runs: vec![json!({
                "program": "numa", "workers": 4, "nodes": 2, "rounds": 15,
                "verdicts": ["skynet: default is slower than flat by 100.0 %: medians .. ms: TOO SLOW"],
            })],
            rows: vec![(Row::of("skynet", "ns", cells), 0)],
        };
        let text = super::numa(&Input {
            compare: None,
            numa: vec![numa],
        });
        assert!(
            text.contains(
                "| ms a round | flat | default |\n|---|---|---|\n| skynet | **1.00** | 2.00 |"
            ),
            "{text}"
        );
        assert!(text.contains(
            "- skynet: default is slower than flat by 100.0 %: medians .. ms: **TOO SLOW**"
        ));
        assert!(text.contains("4 Ps on 2 nodes"));
    }
}
