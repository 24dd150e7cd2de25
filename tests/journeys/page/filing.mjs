// Journeys to the files of an agent: the tab, what a turn changed and the way back, cards of tools, attachments.

import { given, picture, same } from "./tab.mjs";

const PLAN = "# Lisbon\\n- pack\\n- walk\\n";
const WRITES = `write {"path": "/plan.md", "content": "${PLAN}"}`;
const EDITS = 'edit {"path": "/plan.md", "old_string": "- walk", "new_string": "- take the tram\\n- eat"}';
const SQUARE = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mPQz3+OFTEMLQkAOXp1QVdTQY0AAAAASUVORK5CYII=",
  "base64",
);
/** One page that says hello. */
const PDF = [
  "%PDF-1.4",
  "1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj",
  "2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj",
  "3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>endobj",
  "4 0 obj<</Length 37>>stream\nBT /F 24 Tf 80 100 Td (Hello) Tj ET   \nendstream endobj",
  "trailer<</Root 1 0 R>>",
].join("\n");

const file = (name, mimeType, content) => ({ name, mimeType, buffer: Buffer.from(content) });

/** The Files tab. */
class Files {
  constructor(tab) {
    this.tab = tab;
    this.side = tab.page.getByRole("complementary", { name: "Inspector" });
  }

  async look() {
    if (!(await this.side.isVisible())) await this.tab.button("Inspector").click();
    await this.side.getByRole("tab", { name: "Files" }).click();
    await this.side.getByRole("button", { name: "Changes", exact: true }).waitFor();
  }

  entry(path) {
    return this.side.locator(`[data-path="${path}"]`);
  }

  async open(path) {
    await this.entry(path).locator(".open").first().click();
  }

  async upload(files, label = "Upload") {
    await this.side.getByLabel(`${label}: files`, { exact: true }).setInputFiles(files);
  }

  /** How an upload stands. */
  upload_of(path, state) {
    return this.side.locator(`[data-upload="${path}"]${state ? `[data-state="${state}"]` : ""}`);
  }

  /** Drop files on something, as a hand would. */
  async drop(on, files) {
    const given = files.map(({ name, mimeType, buffer }) => ({ name, mimeType, data: [...buffer] }));
    const carried = await this.tab.page.evaluateHandle((all) => {
      const transfer = new DataTransfer();
      for (const { name, mimeType, data } of all) transfer.items.add(new File([new Uint8Array(data)], name, { type: mimeType }));
      return transfer;
    }, given);
    await on.dispatchEvent("dragover", { dataTransfer: carried });
    await on.dispatchEvent("drop", { dataTransfer: carried });
  }

  async view(name) {
    await this.side.getByRole("group", { name: "What is shown" }).getByRole("button", { name, exact: true }).click();
  }

  get changes() {
    return this.side.getByRole("list", { name: "Changes, newest first" }).getByRole("listitem").locator("visible=true");
  }

  async unfold(group) {
    await group.locator("summary").click();
  }

  async confirm(action) {
    await this.tab.page.locator("dialog[open]").getByRole("button", { name: action, exact: true }).click();
  }
}

const group = (files, n) => files.side.locator(".changes > li").nth(n);
const lines = (where) => where.locator(".diff > div > div").allTextContents().then((all) => all.join("|"));

export const journeys = {
  async files_are_brought_looked_at_and_deleted({ tab, another, room }) {
    await tab.open(given.page, "study", room);
    const files = new Files(tab);
    await files.look();
    await files.side.getByText("There are no files yet").waitFor();
    await files.upload([file("notes.txt", "text/plain", "one\ntwo\nthree\n"), file("page.html", "text/html", "<h1>hi</h1><script>document.title='run'</script>")]);
    await files.entry("/notes.txt").waitFor();
    await files.entry("/page.html").waitFor();

    // Another window is told, without asking
    const other = new Files(await another());
    await other.tab.open(given.page, "study", room);
    await other.look();
    await other.entry("/notes.txt").waitFor();

    // Text with its lines
    await files.open("/notes.txt");
    const numbered = files.side.locator(".numbered pre");
    await numbered.first().waitFor();
    same(await numbered.first().textContent(), "1\n2\n3", "numbers");
    same(await numbered.last().textContent(), "one\ntwo\nthree", "text");
    await files.side.getByText("14 B").waitFor();
    const link = files.side.getByRole("link", { name: "Download notes.txt" });
    const [download] = await Promise.all([tab.page.waitForEvent("download"), link.click()]);
    same(download.suggestedFilename(), "notes.txt", "name of the download");
    await files.side.getByRole("button", { name: "Back to the files" }).click();

    // A page is text
    await files.open("/page.html");
    await files.side.locator(".numbered").getByText("<h1>hi</h1>").waitFor();
    same(await files.side.locator("h1").count(), 0, "headings of the file");
    await files.view("Files");

    // Dropped into a folder, a picture
    await files.drop(files.side.locator(".files"), [file("photo.png", "image/png", SQUARE)]);
    await files.entry("/photo.png").waitFor();
    await files.open("/photo.png");
    await files.side.locator("img.picture").waitFor();
    await tab.page.waitForFunction(() => document.querySelector(".file img")?.naturalWidth === 8);
    await files.view("Files");
    await other.entry("/photo.png").waitFor();

    await files.entry("/photo.png").getByRole("button", { name: "Delete photo.png" }).click();
    await files.confirm("Delete");
    await files.entry("/photo.png").waitFor({ state: "detached" });
    await other.entry("/photo.png").waitFor({ state: "detached" });
  },

  async a_file_that_is_there_is_replaced_when_one_says_so({ tab, room }) {
    await tab.open(given.page, "study", room);
    const files = new Files(tab);
    await files.look();
    await files.upload([file("a.txt", "text/plain", "first")]);
    await files.entry("/a.txt").waitFor();
    await files.upload([file("a.txt", "text/plain", "second")]);
    const refused = files.upload_of("/a.txt", "there");
    await refused.getByRole("alert").getByText("There is something at").waitFor();
    await refused.getByRole("button", { name: "Replace it" }).click();
    await files.upload_of("/a.txt", "done").first().waitFor();
    await files.open("/a.txt");
    await files.side.locator(".numbered").getByText("second").waitFor();

    // And what is too large does not even begin
    await files.view("Files");
    await files.upload([file("c.txt", "text/plain", "x".repeat(30_000))]);
    await files.upload_of("/c.txt", "refused").getByRole("alert").getByText("It has 29.3 KB, and at most 19.5 KB are taken here").waitFor();
    same(await files.entry("/c.txt").count(), 0, "files that were refused");
    tab.troubles = tab.troubles.filter((text) => !/status of 409/.test(text)); // the browser's own words for it
  },

  async a_turn_shows_what_it_changed_and_is_put_back({ tab, another, room }) {
    await tab.open(given.page, "study", room);
    await tab.say(WRITES);
    await tab.quiet();
    await tab.say(EDITS);
    await tab.quiet();
    const files = new Files(tab);
    await files.look();
    await files.view("Changes");
    await group(files, 1).waitFor();
    same(await files.side.locator(".changes > li").count(), 2, "turns that changed something");
    await files.unfold(group(files, 0));
    await group(files, 0).locator(".diff").waitFor();
    same(await lines(group(files, 0)), "-1,4 +1,5|  # Lisbon|  - pack|- - walk|+ - take the tram|+ - eat|  ", "what the turn changed");
    same(await group(files, 0).locator(".counts").textContent(), "+2 −1", "how much it changed");

    // To before it, and another window sees it
    const other = new Files(await another());
    await other.tab.open(given.page, "study", room);
    await other.look();
    await other.open("/plan.md");
    await other.side.locator(".numbered").getByText("take the tram").waitFor();
    await group(files, 0).getByRole("button", { name: "Restore to before this" }).click();
    await files.confirm("Restore");
    const told = files.side.getByRole("status").filter({ hasText: "was put back" });
    await told.getByText("1 path was put back.").waitFor();
    await other.side.locator(".numbered").getByText("- walk").waitFor();

    // Which is undone
    await told.getByRole("button", { name: "Undo" }).click();
    await other.side.locator(".numbered").getByText("take the tram").waitFor();
    await files.view("Files");
    await files.open("/plan.md");
    await files.side.locator(".numbered").getByText("take the tram").waitFor();

    // A turn alone
    await files.view("Changes");
    await tab.say('write {"path": "/other.md", "content": "other"}');
    await tab.quiet();
    await group(files, 0).getByText("/other.md new").waitFor();
    same(await group(files, 0).locator(".first .name").textContent(), "turn · ws-chat", "whose change it was");
  },

  async cards_of_file_tools({ tab, another, room }) {
    await fetch(`${given.page}/agents/study/${room}/paint`, { method: "POST" });
    await tab.open(given.page, "study", room);
    await tab.say([WRITES, EDITS, 'read {"path": "/plan.md"}', 'read {"path": "/pictures/square.png"}', 'list {"path": "/"}', 'grep {"query": "^- "}', 'find {"pattern": "**/*.md"}'].join("\n"));
    await tab.quiet();
    const see = async () => {
      const done = (name) => tab.tool(name, "output-available");
      same(await lines(done("write")), "+ # Lisbon|+ - pack|+ - walk", "what was written");
      same(await lines(done("edit")), "- - walk|+ - take the tram|+ - eat", "what was edited");
      same(await done("read").first().locator(".numbered pre").first().textContent(), "1\n2\n3\n4", "numbers of the lines");
      await done("read").last().locator("img").waitFor();
      await tab.page.waitForFunction(() => document.querySelector('[data-tool="read"] img')?.naturalWidth === 8);
      same((await done("list").locator("tr").allTextContents()).join("|"), "pictures/|plan.md38 B", "entries");
      same((await done("grep").locator("td:first-child").allInnerTexts()).join("|"), "/plan.md:2|/plan.md:3|/plan.md:4", "matches");
      same(await done("find").locator("tr").count(), 1, "found files");
    };
    await see();
    await tab.reload();
    await see();
    // A name leads to the file
    await tab.tool("edit", "output-available").getByRole("button", { name: "/plan.md" }).click();
    await new Files(tab).side.locator(".numbered").getByText("take the tram").waitFor();
  },

  async a_script_prints_while_it_runs({ tab, another, room }) {
    await tab.open(given.page, "study", room);
    const second = await another();
    await second.open(given.page, "study", room);
    await tab.say('bash {"script": "count /notes/*.md | sort"}');
    for (const one of [tab, second]) {
      const card = one.tool("bash", "progress");
      await card.getByText("counting…").waitFor();
      await card.getByText("Running", { exact: true }).waitFor();
      same(await card.locator(".script").textContent(), "count /notes/*.md | sort", "script");
      same(await card.locator(".exit").count(), 0, "exit codes of a script that runs");
    }
    await fetch(`${given.page}/agents/study/${room}/go`, { method: "POST" });
    for (const one of [tab, second]) {
      const card = one.tool("bash", "output-available");
      await card.getByText("exit 0").waitFor();
      await card.locator(".changed-files").getByText("/count.txt").waitFor();
      await card.locator(".wrong").getByText("done").waitFor();
    }
  },

  async what_is_attached_goes_to_the_files_and_to_the_model({ tab, room }) {
    await tab.open(given.page, "study", room);
    const field = tab.page.getByLabel("Files to attach");
    await field.setInputFiles([file("square.png", "image/png", SQUARE), file("data.csv", "text/csv", "a,b\n1,2\n")]);
    const attached = tab.page.getByRole("list", { name: "Attached" });
    await attached.getByText("data.csv").waitFor();
    await field.setInputFiles([file("no.txt", "text/plain", "x")]);
    await attached.getByRole("button", { name: "Leave out no.txt" }).click();
    await tab.say("What is this?");
    await tab.shows("Done. I was shown image/png.");
    await tab.quiet();
    same(await attached.count(), 0, "what is still attached");
    const see = async () => {
      const asked = tab.page.locator('[data-role="user"]').last();
      same(await asked.locator("img").count(), 1, "pictures of the question");
      await asked.getByRole("button", { name: "data.csv text/csv, 8 B" }).waitFor();
      same(await asked.locator(".said").innerText(), "What is this?", "what was said");
    };
    await see();
    await tab.reload();
    await see();
    await tab.page.getByRole("button", { name: "data.csv text/csv, 8 B" }).click();
    const files = new Files(tab);
    await files.side.getByRole("heading", { name: "/attachments/data.csv" }).waitFor();
    await files.side.locator(".numbered").getByText("1,2").waitFor();

    // The same name once more is another file; without words, too
    await field.setInputFiles([file("data.csv", "text/csv", "c,d\n")]);
    await tab.button("Send").click();
    await tab.page.getByRole("button", { name: "data-2.csv text/csv, 4 B" }).waitFor();
    await tab.quiet();
  },

  async what_cannot_go_along_stops_the_message_and_leaves_nothing_in_the_files({ tab, room }) {
    await tab.open(given.page, "study", room);
    const field = tab.page.getByLabel("Files to attach");
    await field.setInputFiles([file("small.txt", "text/plain", "x"), file("large.bin", "application/octet-stream", Buffer.alloc(30_000))]);
    await tab.say("Look at these");
    const told = tab.page.getByText("The message was not sent, because of large.bin. It has 29.3 KB, and at most 19.5 KB are taken here.");
    await told.waitFor();
    same(await tab.page.locator('[data-role="user"]').count(), 0, "messages");
    const files = new Files(tab);
    await files.look();
    await files.side.getByText("There are no files yet").waitFor();

    // Without it the message goes, and the file once
    await tab.page.getByRole("list", { name: "Attached" }).getByRole("button", { name: "Leave out large.bin" }).click();
    await tab.button("Send").click();
    await tab.page.getByRole("button", { name: "small.txt text/plain, 1 B" }).waitFor();
    await tab.quiet();
    await files.entry("/attachments").waitFor();
    await files.entry("/attachments").locator(".open").first().click();
    await files.entry("/attachments/small.txt").waitFor();
    same(await files.side.locator('[data-path^="/attachments/"]').count(), 1, "files that went along");
  },

  async an_edit_that_came_to_nothing_is_not_shown_as_done({ tab, room }) {
    await tab.open(given.page, "study", room);
    await tab.say(WRITES);
    await tab.quiet();
    await tab.say('edit {"path": "/plan.md", "old_string": "- swim", "new_string": "- run"}');
    const card = tab.tool("edit", "output-available");
    await card.getByText("old_string was not found in /plan.md").waitFor();
    same(await card.locator("header .state").innerText(), "Failed", "how it stands");
    await tab.reload();
    same(await tab.tool("edit", "output-available").locator("header .state").innerText(), "Failed", "how it stands later");
  },

  async a_pdf_is_shown_in_the_page({ tab, room }) {
    await tab.open(given.page, "study", room);
    const files = new Files(tab);
    await files.look();
    await files.upload([file("paper.pdf", "application/pdf", PDF)]);
    const answered = tab.page.waitForResponse(/files\/content\?path=%2Fpaper\.pdf/);
    await files.entry("/paper.pdf").waitFor();
    await files.open("/paper.pdf");
    await files.side.locator("iframe.pdf").waitFor();
    same((await answered).headers()["content-type"], "application/pdf", "type");
    same(await files.side.getByRole("link", { name: "Open it in a tab of its own" }).count(), 1, "links");
  },

  async pictures_of_files({ tab, another, room }) {
    if (!given.pictures) return "skipped";
    const asked = async (one, name) => {
      await one.open(given.page, "study", name);
      await one.page.evaluate(() => fetch(location.href)); // the page is at rest
      await one.say("Plan our weekend in Lisbon");
      await one.quiet();
      await one.say("We would rather take the tram, and eat well");
      await one.quiet();
    };
    await fetch(`${given.page}/agents/study/${room}/paint`, { method: "POST" });
    await asked(tab, room);
    const files = new Files(tab);
    await files.look();
    await files.entry("/trips").waitFor();
    await files.open("/trips");
    await files.open("/trips/lisbon");
    await files.entry("/trips/lisbon/plan.md").waitFor();
    await picture(tab, "files");
    await files.view("Changes");
    await files.unfold(group(files, 0));
    await group(files, 0).locator(".diff").first().waitFor();
    await tab.page.emulateMedia({ colorScheme: "dark" });
    await picture(tab, "files-diff-dark");
    await files.view("Files");
    await files.open("/trips/lisbon/plan.md");
    await files.side.locator(".numbered").waitFor();
    await picture(tab, "files-text-dark");
    await tab.page.emulateMedia({ colorScheme: "light" });

    await tab.button("Inspector").click();
    await tab.say("How many things are on it?");
    await tab.tool("bash", "progress").getByText("counting…").waitFor();
    await picture(tab, "bash");
    await fetch(`${given.page}/agents/study/${room}/go`, { method: "POST" });
    await tab.quiet();

    const phone = await another({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });
    await phone.open(given.page, "study", room);
    await phone.tool("edit", "output-available").scrollIntoViewIfNeeded();
    await picture(phone, "phone-file-cards");
    const small = new Files(phone);
    await small.look();
    await small.entry("/trips").waitFor();
    await small.open("/trips");
    await small.entry("/trips/lisbon").waitFor();
    await picture(phone, "phone-files");
    await small.view("Changes");
    await small.unfold(group(small, 1));
    await group(small, 1).locator(".diff").first().waitFor();
    await picture(phone, "phone-files-diff");

    const new_one = await another();
    await new_one.open(given.page, "study", `${room}-new`);
    await new_one.page.getByLabel("Files to attach").setInputFiles([file("tickets.pdf", "application/pdf", PDF), file("costs.csv", "text/csv", "what,euro\ntram,6\n")]);
    await new_one.page.getByLabel("Message", { exact: true }).fill("Here are the tickets and what it costs");
    await picture(new_one, "attached");
  },
};
