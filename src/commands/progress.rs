use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error while many things are done, if that is a terminal.
pub(super) struct Bar {
    bar: ProgressBar,
    things: &'static str,
}

impl Bar {
    /// Shows the bar; `things` are what it counts.
    pub(super) fn new(things: &'static str) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style(&format!("{{spinner}} {{pos}} {things}  {{msg}}  {{elapsed}}")));
        Self { bar, things }
    }

    /// Shows how far the work is; `bytes` where they are counted, too.
    pub(super) fn update(&self, done: u64, total: u64, bytes: Option<u64>) {
        if self.bar.length() != Some(total) {
            self.bar.set_length(total);
            let things = self.things;
            self.bar.set_style(style(&format!("{{bar:30}} {{pos}}/{{len}} {things}  {{msg}}  {{eta}} left")));
        }
        self.bar.set_position(done);
        if let Some(bytes) = bytes {
            self.bar.set_message(indicatif::BinaryBytes(bytes).to_string());
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("BUG: the progress template is valid")
}
