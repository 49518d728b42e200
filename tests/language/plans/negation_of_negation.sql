SELECT src
FROM negation(negation(link1, link2, 'src'), negation(link2, link3, 'src'), 'src')
