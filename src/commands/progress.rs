use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::engine::ImportProgress;

/// A bar on standard error while files are imported, if that is a terminal.
pub(super) struct ImportBar(ProgressBar);

impl ImportBar {
    /// Shows the bar.
    pub(super) fn new() -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style("{spinner} {pos} files  {msg}  {elapsed}"));
        Self(bar)
    }

    /// Shows how far the import is.
    pub(super) fn update(&self, progress: &ImportProgress) {
        if self.0.length() != Some(progress.total_files) {
            self.0.set_length(progress.total_files);
            self.0.set_style(style("{bar:30} {pos}/{len} files  {msg}  {eta} left"));
        }
        self.0.set_position(progress.files);
        self.0.set_message(indicatif::BinaryBytes(progress.bytes).to_string());
    }
}

impl Drop for ImportBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("BUG: the progress template is valid")
}
