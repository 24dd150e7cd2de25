/** A question before something that cannot be undone, and the button that leads to it. */

import { useId, useRef, type ReactNode } from "react";

type Props = {
  label: string;
  title?: string;
  className: string;
  disabled?: boolean;
  question: string;
  children: ReactNode;
  action: string;
  icon: ReactNode;
  onYes: () => void;
};

export function Confirm({ label, title = label, className, disabled, question, children, action, icon, onYes }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  return (
    <>
      <button
        type="button"
        className={className}
        aria-label={label}
        title={title}
        disabled={disabled}
        onClick={() => dialog.current?.showModal()}
      >
        {icon}
      </button>
      <dialog
        ref={dialog}
        aria-labelledby={id}
        onKeyDown={(event) => event.stopPropagation()}
        onClick={(event) => event.target === dialog.current && dialog.current?.close()}
      >
        <div className="dialog">
          <h2 id={id}>{question}</h2>
          <p>{children}</p>
          <div className="answer">
            <button type="button" onClick={() => dialog.current?.close()}>
              Keep
            </button>
            <button
              type="button"
              className="danger"
              onClick={() => {
                dialog.current?.close();
                onYes();
              }}
            >
              {action}
            </button>
          </div>
        </div>
      </dialog>
    </>
  );
}
