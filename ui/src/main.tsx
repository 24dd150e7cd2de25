import "./no-eval"; // first

import { createRoot } from "react-dom/client";
import { App } from "./app";
import "./styles.css";
import "./memory.css";
import "./mcp.css";
import "./family.css";
import "./files.css";
import "./code.css";
import "./skills.css";
import "./messengers.css";

const root = document.getElementById("root");
if (root) createRoot(root).render(<App />);
