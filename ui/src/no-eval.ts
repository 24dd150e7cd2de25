import { config } from "zod";

config({ jitless: true }); // the page's policy forbids making code from text; zod would try at import
