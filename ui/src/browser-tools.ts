/** Tools the agent may ask this browser to run, once whoever sits here has said so. */

import type { AITool } from "@cloudflare/ai-chat/react";
import { useState } from "react";

const KEY = "everthink.tools";

/** Whether this browser offers its tools, and the way to change it. Nobody but the person here does. */
export function useOffer(): [boolean, () => void] {
  const [offers, setOffers] = useState(() => read() === "offered");
  const toggle = () => {
    setOffers(!offers);
    try {
      if (offers) localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, "offered");
    } catch {
      // Not remembered, still applied.
    }
  };
  return [offers, toggle];
}

function read(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

const nothing = { type: "object", properties: {}, additionalProperties: false } as const;

function getLocation(): Promise<{ latitude: number; longitude: number; accuracy: number }> {
  return new Promise((resolve, reject) => {
    if (!navigator.geolocation) return reject(new Error("This browser has no geolocation."));
    navigator.geolocation.getCurrentPosition(
      ({ coords }) =>
        resolve({ latitude: coords.latitude, longitude: coords.longitude, accuracy: Math.round(coords.accuracy) }),
      (error) => reject(new Error(error.code === 1 ? "The user did not share the location." : error.message)),
      { timeout: 15_000, maximumAge: 60_000 },
    );
  });
}

function getTime(): { now: string; timeZone: string; language: string } {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return { now: new Date().toString(), timeZone, language: navigator.language };
}

export const browserTools: Record<string, AITool<unknown, unknown>> = {
  getLocation: {
    description: "Where the user is: latitude, longitude and accuracy in metres. The browser asks the user first.",
    parameters: nothing,
    execute: getLocation,
  },
  getTime: {
    description: "The user's local date, time, time zone and language.",
    parameters: nothing,
    execute: getTime,
  },
};
