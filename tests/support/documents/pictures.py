"""Pictures of printed lines, whose text can be recognised."""

import io

from PIL import Image, ImageDraw, ImageFont


def printed(*lines: str) -> Image.Image:
    """Returns a picture of lines of print."""
    image = Image.new("L", (560, 60 + 40 * len(lines)), 255)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=26)
    for number, line in enumerate(lines):
        draw.text((20, 20 + 40 * number), line, font=font, fill=0)
    return image


def picture_file(image: Image.Image, form: str, **options: object) -> bytes:
    """Returns a file of the format `form`: PNG, JPEG or TIFF. `options` are those of Pillow."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def page_with_places(
    *paragraphs: str, width: int = 800, size: int = 26
) -> tuple[Image.Image, list[tuple[str, int, float, float]]]:
    """Returns a picture of sentences that fill lines, and where each word is printed.

    A word has its text, the number of its line, and its left and right edges. The line `n` is
    printed from y = 30 + 44 `n` on, in a font of `size` pixels.
    """
    font = ImageFont.load_default(size=size)
    words: list[tuple[str, int, float, float]] = []
    line, x = -1, 0.0
    for paragraph in paragraphs:
        line, x = line + 1, 30.0
        for word in paragraph.split():
            if x + font.getlength(word) > width - 30:
                line, x = line + 1, 30.0
            words.append((word, line, x, x + font.getlength(word)))
            x += font.getlength(f"{word} ")
    image = Image.new("L", (width, 104 + 44 * line), 255)
    draw = ImageDraw.Draw(image)
    for word, number, left, _ in words:
        draw.text((left, 30 + 44 * number), word, font=font, fill=0)
    return image, words
