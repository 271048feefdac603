//! The page of a run: one HTML file with its charts in it.

use std::fmt::Write;

use super::screen::{self, Report};
use crate::report::chart;
use crate::report::page::describe;

const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>windlass: cargo bench</title>\n<style>\
    body{font:16px sans-serif;max-width:980px;margin:2em auto;padding:0 1em}\
    svg{max-width:100%;height:auto}table{border-collapse:collapse}\
    td,th{padding:.2em .7em;border-bottom:1px solid #d1d9e0;text-align:right}\
    td:first-child,td:last-child,th:first-child,th:last-child{text-align:left}</style>\n\
    <h1>windlass: cargo bench</h1>\n";

/// All of the file.
pub fn html(report: &Report) -> String {
    let mut text = String::from(HEAD);
    let _ = writeln!(text, "<p>{}</p>", escaped(&describe(&report.machine)));
    if let Some(warning) = screen::busy(report.others) {
        let _ = writeln!(text, "<p><b>{}</b></p>", escaped(&warning));
    }
    text.push_str("<ul>\n");
    for line in screen::verdicts(report) {
        let _ = writeln!(text, "<li>{}</li>", escaped(&line));
    }
    text.push_str("</ul>\n");
    for topic in report.topics() {
        let svg = chart::of_rows(&report.rows_of(topic));
        let _ = writeln!(text, "<h2>{topic}</h2>\n{}", svg.unwrap_or_default());
    }
    for svg in &report.pictures {
        let _ = writeln!(text, "<h2>Scaling</h2>\n{svg}");
    }
    if !report.rows.is_empty() {
        let _ = writeln!(
            text,
            "<h2>Table</h2>\n<p>{}</p>\n{}",
            screen::ABOUT,
            table(report)
        );
    }
    text
}

fn table(report: &Report) -> String {
    let mut text = String::from("<table>\n");
    for (i, line) in screen::cells(&report.rows).iter().enumerate() {
        let tag = if i == 0 { "th" } else { "td" };
        let cell = |cell: &String| format!("<{tag}>{}</{tag}>", escaped(cell));
        let cells: String = line.iter().map(cell).collect();
        let _ = writeln!(text, "<tr>{cells}</tr>");
    }
    text + "</table>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Row;

    #[test]
    fn the_page_has_charts_table_and_verdicts() {
        let cells: &[(&str, &[f64])] = &[("windlass", &[6.0]), ("tokio", &[9.0])];
        let report = Report {
            machine: serde_json::json!({ "cpu": "A <CPU>" }),
            others: 0.0,
            rows: vec![Row::of("yield", "ns", cells)],
            verdicts: Vec::new(),
            pictures: vec!["<svg>curves</svg>".into()],
            folder: "/target".into(),
        };
        let html = html(&report);
        for part in [
            "A &lt;CPU&gt;",
            "<h2>Tasks</h2>\n<svg",
            "<svg>curves</svg>",
            "<td>*6.00 ns</td><td>9.00 ns</td><td>ahead of tokio by 50 %</td>",
            "<li>Tasks: ahead of all peers in 1 of 1 rows",
        ] {
            assert!(html.contains(part), "{part} is missing:\n{html}");
        }
        assert!(!html.contains("Other programs"));
    }
}
